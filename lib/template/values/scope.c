/* Names and their values. */
#include "base/check.h"
#include "values/run.h"

const struct wefti_tmpl_value *wefti_tmpl_space_find(const struct wefti_tmpl_space *space,
                                                     struct weft_str name) {
    for (uint32_t i = 0; i < space->n; i++)
        if (weft_str_is(space->bindings[i].name, name.data, name.len))
            return &space->bindings[i].value;
    return NULL;
}

weft_err wefti_tmpl_bind(struct wefti_tmpl_run *run, struct wefti_tmpl_space *space,
                         struct weft_str name, struct wefti_tmpl_value value) {
    WEFT_ASSERT(space->n <= space->cap);
    WEFT_ASSERT(name.data);
    for (uint32_t i = 0; i < space->n; i++) {
        if (!weft_str_is(space->bindings[i].name, name.data, name.len)) continue;
        space->bindings[i].value = value;
        return WEFT_OK;
    }
    weft_err err = wefti_tmpl_charge(run, 1 + space->n / 8);
    if (err) return err;
    if (space->n == space->cap) {
        uint32_t cap = space->cap ? 2 * space->cap : 4;
        void *grown;
        err = wefti_tmpl_alloc(run, cap * sizeof *space->bindings, &grown);
        if (err) return err;
        if (space->n > 0) memcpy(grown, space->bindings, space->n * sizeof *space->bindings);
        space->bindings = grown;
        space->cap = cap;
    }
    space->bindings[space->n++] = (struct wefti_tmpl_binding){name, value};
    return WEFT_OK;
}

weft_err wefti_tmpl_push_scope(struct wefti_tmpl_run *run, struct wefti_tmpl_space *parent) {
    WEFT_ASSERT(!parent || parent->n <= parent->cap);
    void *made;
    weft_err err = wefti_tmpl_alloc(run, sizeof(struct wefti_tmpl_space), &made);
    if (err) return err;
    run->scope = made;
    *run->scope = (struct wefti_tmpl_space){.parent = parent};
    return WEFT_OK;
}
