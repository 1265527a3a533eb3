/* What a model says besides its weights, told apart by content: one "NAME=HASH" for each file or
 * section, in a fixed order, with commas between them. A front that starts again compares what it
 * finds with what was there before: with another tokenizer its ids would mean other tokens than the
 * weights in memory know, and the answers would not show it. */
#include "model_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/check.h"
#include "file.h"
#include "gguf/gguf.h"
#include "packed/packed.h"

/* What lib/tokenizer and lib/template read of a folder, and weft_model_pooling_read; config.json for its
 * eos_token_id, too. And what modules.json names. */
static const char *const front_files[] = {
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
    "config.json",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
};
#define FRONT_FILE_BYTES_MAX (256u << 20)

void weft_identity_add(struct weft_buf *identity, const char *name, const void *bytes, size_t n) {
    WEFT_ASSERT(*name);
    WEFT_ASSERT(!strpbrk(name, "=,"));
    WEFT_ASSERT(bytes || n == 0);
    weft_buf_printf(identity, "%s%s=%016" PRIx64, identity->len ? "," : "", name,
                    (uint64_t)XXH3_64bits(bytes, n));
}

/* What is missing or unreadable has no entry: whoever needs it says so. */
static weft_err add_file(const char *dir, const char *name, struct weft_buf *identity,
                         struct weft_errmsg *why) {
    struct weft_errmsg detail = {""};
    char *text;
    size_t len;
    weft_err err = weft_model_read_in(dir, name, FRONT_FILE_BYTES_MAX, &text, &len, &detail);
    if (!err) weft_identity_add(identity, name, text, len);
    free(text);
    if (err == WEFT_E_NOMEM || err == WEFT_E_IO) return weft_err_set(why, err, "%s", detail.text);
    return WEFT_OK;
}

static weft_err add_folder(const char *dir, struct weft_buf *identity, struct weft_errmsg *why) {
    char pooling[WEFTI_MODEL_POOLING_NAME_BYTES];
    struct weft_errmsg detail = {""};
    weft_err err = WEFT_OK;
    for (size_t i = 0; i < sizeof front_files / sizeof *front_files && !err; i++)
        err = add_file(dir, front_files[i], identity, why);
    if (err) return err;
    err = wefti_model_pooling_file(dir, pooling, &detail);
    if (err == WEFT_E_NOMEM || err == WEFT_E_IO) return weft_err_set(why, err, "%s", detail.text);
    return !err && *pooling ? add_file(dir, pooling, identity, why) : WEFT_OK;
}

static weft_err add_gguf(const char *path, struct weft_buf *identity, struct weft_errmsg *why) {
    weft_gguf *gguf;
    weft_err err = weft_gguf_open(path, &gguf, why);
    if (err) return err;
    weft_identity_add(identity, "metadata", gguf->file.bytes, gguf->tensors_at);
    weft_gguf_free(gguf);
    return WEFT_OK;
}

/* All sections as one: nobody changes a single one of them. */
static weft_err add_packed(const char *path, struct weft_buf *identity, struct weft_errmsg *why) {
    struct wefti_model_file file;
    struct wefti_model_packed_view view;
    weft_err err = wefti_model_file_map(path, UINT64_MAX, &file, why);
    if (err) return err;
    err = wefti_model_packed_parse(&file, &view, why);
    if (!err) weft_identity_add(identity, "packed", view.sections, view.sections_bytes);
    wefti_model_file_close(&file);
    return err;
}

weft_err weft_model_identity(const char *path, struct weft_buf *identity, struct weft_errmsg *why) {
    struct weft_model_place place;
    weft_err err = weft_model_locate(path, &place, why);
    if (err) return err;
    if (place.packed)
        err = add_packed(place.path, identity, why);
    else if (place.format == WEFT_MODEL_GGUF)
        err = add_gguf(place.path, identity, why);
    else
        err = add_folder(place.path, identity, why);
    weft_model_place_fini(&place);
    return err;
}

/* Whether `identity` has this entry, "NAME=HASH", or only its name. */
static bool has_entry(const char *identity, const char *entry, size_t len) {
    for (const char *at = identity; *at;) {
        size_t n = strcspn(at, ",");
        if (n >= len && memcmp(at, entry, len) == 0 && (n == len || at[len] == '=')) return true;
        at += n + (at[n] == ',');
    }
    return false;
}

/* Appends the names of entries in `these` that `others` lacks; `by_name`: those it
 * lacks even by name. */
static void add_missing(const char *these, const char *others, bool by_name,
                        struct weft_buf *names) {
    for (const char *at = these; *at;) {
        size_t n = strcspn(at, ","), n_name = strcspn(at, "=,");
        if (!has_entry(others, at, by_name ? n_name : n)) {
            if (names->len) weft_buf_add_str(names, ", ");
            weft_buf_add(names, at, n_name);
        }
        at += n + (at[n] == ',');
    }
}

bool weft_identity_is(const char *had, const char *has, struct weft_buf *changed) {
    weft_buf_clear(changed);
    add_missing(had, has, false, changed);
    add_missing(has, had, true, changed);
    return changed->len == 0 && !changed->failed;
}
