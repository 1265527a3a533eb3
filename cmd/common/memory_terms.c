#include "common/memory_terms.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/parse.h"

enum { FIELDS = 6 };

#define BYTES_MAX 1000000000000000u /* of a term, as of --memory-limit */
#define TIMES_MAX 1000000u

const char *weft_memory_terms_print(const struct weft_eng_limit *limit,
                                    char out[WEFT_MEMORY_TERMS_BYTES]) {
    size_t n = 0;
    out[0] = '\0';
    for (uint32_t i = 0; i < limit->n_terms; i++) {
        const struct weft_eng_limit_term *t = &limit->terms[i];
        int len =
            snprintf(out + n, WEFT_MEMORY_TERMS_BYTES - n, "%s%s:%s:%u:%u:%" PRIu64 ":%" PRIu64,
                     i ? "," : "", t->name, t->flag, t->n, t->part, t->least_bytes, t->most_bytes);
        WEFT_ASSERT(len > 0 && (size_t)len < WEFT_MEMORY_TERMS_BYTES - n);
        n += (size_t)len;
    }
    return out;
}

static bool take_text(struct weft_str field, char *out, size_t out_bytes) {
    if (field.len >= out_bytes) return false;
    if (field.len > 0) memcpy(out, field.data, field.len);
    out[field.len] = '\0';
    return true;
}

static bool take_term(struct weft_str text, struct weft_eng_limit_term *out) {
    char copy[128];
    struct weft_str fields[FIELDS], more;
    uint64_t n = 0, part = 0;
    uint32_t n_fields = 0;
    if (!take_text(text, copy, sizeof copy)) return false;
    const char *at = copy;
    while (n_fields < FIELDS && weft_parse_member(&at, ":", &fields[n_fields]))
        n_fields++;
    if (n_fields < FIELDS || weft_parse_member(&at, ":", &more)) return false;
    bool is_good = fields[0].len > 0 && take_text(fields[0], out->name, sizeof out->name) &&
                   take_text(fields[1], out->flag, sizeof out->flag) &&
                   !weft_parse_member_u64(fields[2], TIMES_MAX, &n) &&
                   !weft_parse_member_u64(fields[3], TIMES_MAX, &part) &&
                   !weft_parse_member_u64(fields[4], BYTES_MAX, &out->least_bytes) &&
                   !weft_parse_member_u64(fields[5], BYTES_MAX, &out->most_bytes);
    out->n = (uint32_t)n;
    out->part = (uint32_t)part;
    return is_good;
}

weft_err weft_memory_terms_parse(const char *text, struct weft_eng_limit *limit,
                                 struct weft_errmsg *why) {
    struct weft_str term;
    limit->n_terms = 0;
    for (const char *at = text; weft_parse_member(&at, ",", &term);) {
        if (limit->n_terms == WEFT_ENG_LIMIT_TERMS_MAX ||
            !take_term(term, &limit->terms[limit->n_terms++]))
            return weft_err_set(why, WEFT_E_INVAL,
                                "--memory-terms is up to %d of NAME:FLAG:N:PART:LEAST:MOST",
                                WEFT_ENG_LIMIT_TERMS_MAX);
    }
    return WEFT_OK;
}
