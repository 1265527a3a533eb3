#include "goal.h"

#include <string.h>

#include "base/parse.h"

#define BOUND_BYTES_MAX 32

static double *bound_named(struct weft_traffic_goal *goal, const char *name, size_t len) {
    struct {
        const char *name;
        double *bound;
    } bounds[] = {{"ttft", &goal->ttft_ms},
                  {"itl", &goal->itl_ms},
                  {"tpot", &goal->tpot_ms},
                  {"e2el", &goal->e2el_ms}};
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        if (strlen(bounds[i].name) == len && !memcmp(bounds[i].name, name, len))
            return bounds[i].bound;
    }
    return NULL;
}

static bool take_bound(struct weft_traffic_goal *goal, const char *text, size_t len) {
    char number[BOUND_BYTES_MAX];
    const char *colon = memchr(text, ':', len);
    double *bound = colon ? bound_named(goal, text, (size_t)(colon - text)) : NULL;
    if (!bound) return false;
    size_t n = len - (size_t)(colon + 1 - text);
    if (n >= sizeof number) return false;
    memcpy(number, colon + 1, n);
    number[n] = '\0';
    return !weft_parse_double(number, bound) && *bound > 0;
}

weft_err weft_traffic_goal_parse(const char *text, struct weft_traffic_goal *out,
                                 struct weft_errmsg *why) {
    *out = (struct weft_traffic_goal){0};
    struct weft_str member;
    bool is_good = true;
    for (const char *at = text; is_good && weft_parse_member(&at, ", ", &member);)
        is_good = member.len > 0 && take_bound(out, member.data, member.len);
    if (!is_good)
        return weft_err_set(why, WEFT_E_INVAL,
                            "--goodput is bounds of ttft, itl, tpot and e2el in milliseconds, as "
                            "ttft:2000,itl:200, not \"%s\"",
                            text);
    return WEFT_OK;
}

static bool is_over(double bound, double value) {
    return bound > 0 && value > bound;
}

bool weft_traffic_is_good(const struct weft_traffic_goal *goal,
                          const struct weft_traffic_outcome *o) {
    double ttft_bound = o->deadline_ms > 0 ? o->deadline_ms : goal->ttft_ms;
    if (is_over(ttft_bound, o->ttft_ms) || is_over(goal->e2el_ms, o->e2el_ms)) return false;
    if (goal->itl_ms > 0 && o->n_gaps_over * 100 > o->n_gaps) return false;
    if (o->n_tokens < 2) return true; /* nothing between tokens */
    return !is_over(goal->tpot_ms, (o->e2el_ms - o->ttft_ms) / (double)(o->n_tokens - 1));
}
