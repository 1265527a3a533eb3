/* GGUF files in parts. Each part is a GGUF file with tensors of its own and three keys, split.no
 * (from 0), split.count and split.tensors.count (of all parts); the first part has all other
 * metadata. The others are found by name: NAME-00001-of-00003.gguf and so on. The metadata, not the
 * name, says whether a file is a part. */
#include "gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"

enum { NUMBER_DIGITS = 5, SUFFIX_LEN = 1 + NUMBER_DIGITS + 4 + NUMBER_DIGITS + 5 };
_Static_assert(SUFFIX_LEN == sizeof "-00001-of-00003.gguf" - 1, "as names end");
_Static_assert(WEFTI_MODEL_SHARDS_MAX <= 99999, "its digits are enough for the last part");

static bool read_digits(const char *at, uint32_t *out) {
    *out = 0;
    for (uint32_t i = 0; i < NUMBER_DIGITS; i++) {
        if (at[i] < '0' || at[i] > '9') return false;
        *out = *out * 10 + (uint32_t)(at[i] - '0');
    }
    return true;
}

/* The numbers in a part's name, from 1 on. */
static bool split_name(const char *path, uint32_t *number_out, uint32_t *count_out) {
    size_t len = strlen(path);
    if (len < SUFFIX_LEN) return false;
    const char *suffix = path + len - SUFFIX_LEN, *of = suffix + 1 + NUMBER_DIGITS;
    return suffix[0] == '-' && memcmp(of, "-of-", 4) == 0 &&
           strcmp(of + 4 + NUMBER_DIGITS, ".gguf") == 0 && read_digits(suffix + 1, number_out) &&
           read_digits(of + 4, count_out);
}

/* The name of another part; malloc'd, NULL when out of memory. */
static char *part_path(const char *path, uint32_t number, uint32_t count) {
    char *out = NULL;
    WEFT_ASSERT(strlen(path) >= SUFFIX_LEN);
    WEFT_ASSERT(number >= 1 && number <= 99999);
    int stem = (int)(strlen(path) - SUFFIX_LEN);
    return asprintf(&out, "%.*s-%05u-of-%05u.gguf", stem, path, number, count) < 0 ? NULL : out;
}

static weft_err is_missing(const char *path, uint32_t count, struct weft_errmsg *why) {
    return weft_err_set(why, WEFT_E_NOTFOUND, "%s: is missing: the model is in %u parts", path,
                        count);
}

bool wefti_model_gguf_is_part(const weft_gguf *gguf) {
    uint64_t count;
    if (!wefti_model_gguf_find(gguf, "split.count")) return false;
    return !weft_gguf_u64(gguf, "split.count", &count) || count > 1;
}

weft_err wefti_model_gguf_first_part(const char *path, char **first_out, struct weft_errmsg *why) {
    uint32_t number, count;
    weft_gguf *gguf;
    *first_out = NULL;
    if (!split_name(path, &number, &count) || number <= 1) return WEFT_OK;
    weft_err err = weft_gguf_open(path, &gguf, why);
    if (err) return err;
    bool is_part = wefti_model_gguf_is_part(gguf);
    weft_gguf_free(gguf);
    if (!is_part) return WEFT_OK;
    char *first = part_path(path, 1, count);
    if (!first) return weft_err_set(why, WEFT_E_NOMEM, "out of memory while opening %s", path);
    if (access(first, F_OK) != 0) {
        err = is_missing(first, count, why);
        free(first);
        return err;
    }
    *first_out = first;
    return WEFT_OK;
}

struct split {
    uint64_t no, count, n_tensors;
};

static weft_err read_split(const weft_gguf *gguf, struct split *out, struct weft_errmsg *why) {
    if (weft_gguf_u64(gguf, "split.no", &out->no) &&
        weft_gguf_u64(gguf, "split.count", &out->count) &&
        weft_gguf_u64(gguf, "split.tensors.count", &out->n_tensors))
        return WEFT_OK;
    return weft_err_set(why, WEFT_E_PROTO,
                        "%s: is a part of a model, but lacks split.no, split.count or "
                        "split.tensors.count",
                        gguf->file.path);
}

static weft_err check_first(const char *path, const struct split *split, struct weft_errmsg *why) {
    uint32_t number = 0, count = 0;
    if (split->count > WEFTI_MODEL_SHARDS_MAX || split->no >= split->count)
        return weft_err_set(why, WEFT_E_PROTO,
                            "%s: is part %" PRIu64 " of %" PRIu64 "; up to %d are allowed", path,
                            split->no + 1, split->count, WEFTI_MODEL_SHARDS_MAX);
    if (!split_name(path, &number, &count) || number != split->no + 1 || count != split->count)
        return weft_err_set(why, WEFT_E_PROTO,
                            "%s: is part %" PRIu64 " of %" PRIu64 ", and its name must end in "
                            "-%05" PRIu64 "-of-%05" PRIu64 ".gguf for the others to be found",
                            path, split->no + 1, split->count, split->no + 1, split->count);
    if (split->no != 0)
        return weft_err_set(why, WEFT_E_PROTO, "%s: is not the first part of a model", path);
    return WEFT_OK;
}

/* Part `number` of the model whose first one is at `first`: *gguf_out is the caller's. */
static weft_err open_part(const char *first, uint32_t number, const struct split *whole,
                          weft_gguf **gguf_out, struct weft_errmsg *why) {
    struct wefti_model_file file;
    struct split split;
    char *path = part_path(first, number, (uint32_t)whole->count);
    *gguf_out = NULL;
    if (!path) return weft_err_set(why, WEFT_E_NOMEM, "out of memory while opening %s", first);
    weft_err err = wefti_model_file_map(path, UINT64_MAX, &file, why);
    if (err == WEFT_E_NOTFOUND) err = is_missing(path, (uint32_t)whole->count, why);
    free(path);
    if (!err) err = wefti_model_gguf_parse(&file, gguf_out, why);
    if (!err) err = read_split(*gguf_out, &split, why);
    if (!err && (split.no + 1 != number || split.count != whole->count ||
                 split.n_tensors != whole->n_tensors))
        err = weft_err_set(why, WEFT_E_PROTO,
                           "%s: is part %" PRIu64 " of %" PRIu64 " with %" PRIu64
                           " tensors, where %s begins a model of %" PRIu64 " parts with %" PRIu64
                           " tensors",
                           (*gguf_out)->file.path, split.no + 1, split.count, split.n_tensors,
                           first, whole->count, whole->n_tensors);
    if (err) {
        weft_gguf_free(*gguf_out);
        *gguf_out = NULL;
    }
    return err;
}

static weft_err add_part(weft_model *model, const char *first, uint32_t number,
                         const struct split *whole, struct weft_errmsg *why) {
    weft_gguf *part;
    weft_err err = open_part(first, number, whole, &part, why);
    if (err) return err;
    err = wefti_model_gguf_tensors(model, part, why);
    if (!err) {
        err = wefti_model_add_file(model, &part->file);
        if (err) err = weft_err_set(why, err, "out of memory while opening a model");
    }
    weft_gguf_free(part);
    return err;
}

weft_err wefti_model_gguf_check_first(const weft_gguf *gguf, struct weft_errmsg *why) {
    struct split split;
    if (!wefti_model_gguf_is_part(gguf)) return WEFT_OK;
    weft_err err = read_split(gguf, &split, why);
    return err ? err : check_first(gguf->file.path, &split, why);
}

weft_err wefti_model_gguf_add_parts(weft_model *model, const weft_gguf *first,
                                    struct weft_errmsg *why) {
    struct split whole;
    WEFT_ASSERT(model->n_tensors >= first->n_tensors); /* its own are there */
    if (!wefti_model_gguf_is_part(first)) return WEFT_OK;
    weft_err err = read_split(first, &whole, why);
    for (uint32_t number = 2; !err && number <= whole.count; number++) {
        err = add_part(model, first->file.path, number, &whole, why);
    }
    if (!err && model->n_tensors != whole.n_tensors)
        err = weft_err_set(why, WEFT_E_PROTO,
                           "%s: its parts hold %zu tensors together, and split.tensors.count says "
                           "%" PRIu64,
                           first->file.path, model->n_tensors, whole.n_tensors);
    return err;
}
