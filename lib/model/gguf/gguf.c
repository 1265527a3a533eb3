/* A GGUF file is a magic, a version, two counts, the metadata, the tensor descriptions and the
 * data. The metadata is walked once when the file is opened: after that every value is known to lie
 * within the mapping, and the accessors need no checks but those of type and index. */
#include "gguf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/cursor.h"
#include "packed/packed.h"

#define KEYS_MAX 65536u        /* files have a few dozen */
#define KEY_BYTES_MAX 65535u   /* the format's own bound */
#define STRINGS_MAX (1u << 24) /* in all arrays: vocabulary and merges of the largest are 1 M */
#define DEPTH_MAX 8            /* arrays of arrays of ... */

struct parser {
    weft_gguf *gguf;
    struct weft_cursor cur;
    struct wefti_model_shown key; /* being read, for messages */
    struct weft_errmsg *why;
};

/* 0 for what has no fixed size. */
static size_t type_bytes(enum weft_gguf_type type) {
    switch (type) {
    case WEFT_GGUF_U8:
    case WEFT_GGUF_I8:
    case WEFT_GGUF_BOOL:
        return 1;
    case WEFT_GGUF_U16:
    case WEFT_GGUF_I16:
        return 2;
    case WEFT_GGUF_U32:
    case WEFT_GGUF_I32:
    case WEFT_GGUF_F32:
        return 4;
    case WEFT_GGUF_U64:
    case WEFT_GGUF_I64:
    case WEFT_GGUF_F64:
        return 8;
    case WEFT_GGUF_STRING:
    case WEFT_GGUF_ARRAY:
    case WEFT_GGUF_TYPE_COUNT:
        break;
    }
    return 0;
}

static weft_err malformed(const struct parser *p, const char *fault) {
    return weft_err_set(p->why, WEFT_E_PROTO, "%s: metadata key '%s' %s", p->gguf->file.path,
                        p->key.text, fault);
}

static weft_err truncated(const struct parser *p) {
    return malformed(p, "reaches past the end of the file");
}

static weft_err read_type(struct parser *p, enum weft_gguf_type *type_out) {
    uint32_t type = weft_cursor_u32(&p->cur);
    *type_out = WEFT_GGUF_U8;
    if (p->cur.failed) return truncated(p);
    if (type >= WEFT_GGUF_TYPE_COUNT) {
        return weft_err_set(p->why, WEFT_E_PROTO, "%s: metadata key '%s' has unknown type %u",
                            p->gguf->file.path, p->key.text, type);
    }
    *type_out = (enum weft_gguf_type)type;
    return WEFT_OK;
}

/* Passes over `count` values of a fixed-size type. */
static weft_err pass_fixed(struct parser *p, enum weft_gguf_type type, uint64_t count) {
    size_t size = type_bytes(type);
    WEFT_ASSERT(size > 0);
    if (count > weft_cursor_left(&p->cur) / size) return truncated(p);
    const unsigned char *bytes = weft_cursor_take(&p->cur, count * size);
    WEFT_ASSERT(bytes);
    for (uint64_t i = 0; type == WEFT_GGUF_BOOL && i < count; i++) {
        if (bytes[i] > 1) return malformed(p, "has a boolean that is neither 0 nor 1");
    }
    return WEFT_OK;
}

static weft_err pass_string(struct parser *p) {
    uint64_t len = weft_cursor_u64(&p->cur);
    (void)weft_cursor_take(&p->cur, len);
    return p->cur.failed ? truncated(p) : WEFT_OK;
}

/* Passes over `count` strings and, where `index` is not NULL, notes where each begins. */
static weft_err pass_strings(struct parser *p, uint64_t count, const unsigned char **index) {
    for (uint64_t i = 0; i < count; i++) {
        if (index) index[i] = p->cur.at;
        weft_err err = pass_string(p);
        if (err) return err;
    }
    return WEFT_OK;
}

/* Element type and count; the elements follow. */
static weft_err read_array_head(struct parser *p, enum weft_gguf_type *type_out,
                                uint64_t *count_out) {
    weft_err err = read_type(p, type_out);
    *count_out = weft_cursor_u64(&p->cur);
    if (err) return err;
    if (p->cur.failed) return truncated(p);
    /* A string takes at least 8 bytes, an array 12, so the file's length bounds every loop. */
    size_t size = type_bytes(*type_out);
    if (*count_out > weft_cursor_left(&p->cur) / (size ? size : 8)) return truncated(p);
    return WEFT_OK;
}

static weft_err pass_elements(struct parser *p, enum weft_gguf_type type, uint64_t count,
                              unsigned depth) {
    if (type == WEFT_GGUF_STRING) return pass_strings(p, count, NULL);
    if (type != WEFT_GGUF_ARRAY) return pass_fixed(p, type, count);
    if (depth == DEPTH_MAX) return malformed(p, "has arrays nested too deeply");
    for (uint64_t i = 0; i < count; i++) {
        enum weft_gguf_type inner_type;
        uint64_t inner_count;
        weft_err err = read_array_head(p, &inner_type, &inner_count);
        if (err) return err;
        err = pass_elements(p, inner_type, inner_count, depth + 1);
        if (err) return err;
    }
    return WEFT_OK;
}

static weft_err read_array(struct parser *p, struct wefti_model_gguf_kv *kv) {
    uint64_t count;
    weft_err err = read_array_head(p, &kv->elem_type, &count);
    if (err) return err;
    kv->count = count;
    kv->value = p->cur.at;
    if (kv->elem_type != WEFT_GGUF_STRING || count == 0) {
        return pass_elements(p, kv->elem_type, count, 1);
    }
    p->gguf->n_strings += count;
    if (p->gguf->n_strings > STRINGS_MAX) return malformed(p, "has too many strings");
    WEFT_ASSERT(!kv->strings);
    kv->strings = malloc(count * sizeof *kv->strings);
    if (!kv->strings) {
        return weft_err_set(p->why, WEFT_E_NOMEM, "%s: out of memory for %" PRIu64 " strings",
                            p->gguf->file.path, count);
    }
    return pass_strings(p, count, kv->strings);
}

static weft_err read_kv(struct parser *p, struct wefti_model_gguf_kv *kv) {
    p->key = wefti_model_show("", 0);
    uint64_t len = weft_cursor_u64(&p->cur);
    const char *key = (const char *)weft_cursor_take(&p->cur, len);
    if (!key) return malformed(p, "reaches past the end of the file");
    p->key = wefti_model_show(key, len);
    if (len == 0 || len > KEY_BYTES_MAX) return malformed(p, "has a name of an unfit length");
    kv->key = (struct weft_str){key, len};
    weft_err err = read_type(p, &kv->type);
    if (err) return err;
    if (kv->type == WEFT_GGUF_ARRAY) return read_array(p, kv);
    kv->value = p->cur.at;
    return kv->type == WEFT_GGUF_STRING ? pass_string(p) : pass_fixed(p, kv->type, 1);
}

static int compare_str(struct weft_str a, struct weft_str b) {
    int order = memcmp(a.data, b.data, a.len < b.len ? a.len : b.len);
    return order ? order : (a.len > b.len) - (a.len < b.len);
}

static int by_key(const void *a, const void *b) {
    return compare_str(((const struct wefti_model_gguf_ref *)a)->key,
                       ((const struct wefti_model_gguf_ref *)b)->key);
}

const struct wefti_model_gguf_kv *wefti_model_gguf_find(const weft_gguf *gguf, const char *key) {
    const struct wefti_model_gguf_ref wanted = {.key = {key, strlen(key)}};
    const struct wefti_model_gguf_ref *found =
        bsearch(&wanted, gguf->by_key, gguf->n_kvs, sizeof *gguf->by_key, by_key);
    return found ? found->kv : NULL;
}

static weft_err index_keys(struct parser *p) {
    weft_gguf *gguf = p->gguf;
    for (size_t i = 0; i < gguf->n_kvs; i++) {
        gguf->by_key[i] = (struct wefti_model_gguf_ref){gguf->kvs[i].key, &gguf->kvs[i]};
    }
    qsort(gguf->by_key, gguf->n_kvs, sizeof *gguf->by_key, by_key);
    for (size_t i = 1; i < gguf->n_kvs; i++) {
        struct weft_str key = gguf->by_key[i].key;
        if (compare_str(gguf->by_key[i - 1].key, key) != 0) continue;
        p->key = wefti_model_show(key.data, key.len);
        return malformed(p, "is there twice");
    }
    return WEFT_OK;
}

static weft_err read_magic(struct parser *p) {
    const char *path = p->gguf->file.path;
    const unsigned char *magic = weft_cursor_take(&p->cur, 4);
    if (!magic || memcmp(magic, "GGUF", 4) != 0) {
        return weft_err_set(p->why, WEFT_E_PROTO, "%s: is not a GGUF file", path);
    }
    uint32_t version = weft_cursor_u32(&p->cur);
    if (p->cur.failed) return weft_err_set(p->why, WEFT_E_PROTO, "%s: has no version", path);
    if (version != 0 && (version & 0xffff) == 0) {
        return weft_err_set(p->why, WEFT_E_UNSUPPORTED,
                            "%s: is a big-endian GGUF file, which is not supported", path);
    }
    if (version != 2 && version != 3) {
        return weft_err_set(p->why, WEFT_E_UNSUPPORTED,
                            "%s: has GGUF version %u, which is not supported (2 and 3 are)", path,
                            version);
    }
    return WEFT_OK;
}

static weft_err read_alignment(weft_gguf *gguf, struct weft_errmsg *why) {
    static const char key[] = "general.alignment";
    uint64_t alignment = 32; /* the format's default */
    if (wefti_model_gguf_find(gguf, key) &&
        (!weft_gguf_u64(gguf, key, &alignment) || alignment == 0 ||
         (alignment & (alignment - 1)) != 0 || alignment > UINT32_MAX)) {
        return weft_err_set(why, WEFT_E_PROTO, "%s: %s is not a power of two", gguf->file.path,
                            key);
    }
    gguf->alignment = alignment;
    return WEFT_OK;
}

static weft_err parse(weft_gguf *gguf, struct weft_errmsg *why) {
    struct parser p = {.gguf = gguf, .why = why};
    weft_cursor_init(&p.cur, gguf->file.bytes, gguf->file.n_bytes);
    weft_err err = read_magic(&p);
    if (err) return err;
    gguf->n_tensors = weft_cursor_u64(&p.cur);
    uint64_t n_kvs = weft_cursor_u64(&p.cur);
    if (p.cur.failed) {
        return weft_err_set(why, WEFT_E_PROTO, "%s: the file ends within its header",
                            gguf->file.path);
    }
    /* The least a key can take: its length, a letter, its type and one byte of value. */
    if (n_kvs > KEYS_MAX || n_kvs > weft_cursor_left(&p.cur) / 14) {
        return weft_err_set(why, WEFT_E_PROTO,
                            "%s: claims %" PRIu64 " metadata keys; %u are allowed, and the file "
                            "has room for %zu",
                            gguf->file.path, n_kvs, KEYS_MAX, weft_cursor_left(&p.cur) / 14);
    }
    gguf->kvs = calloc(n_kvs + 1, sizeof *gguf->kvs);
    gguf->by_key = calloc(n_kvs + 1, sizeof *gguf->by_key);
    if (!gguf->kvs || !gguf->by_key) {
        return weft_err_set(why, WEFT_E_NOMEM, "%s: out of memory for the metadata",
                            gguf->file.path);
    }
    for (uint64_t i = 0; i < n_kvs; i++) {
        gguf->n_kvs++; /* counted first, so that what a failing read allocated is freed */
        err = read_kv(&p, &gguf->kvs[i]);
        if (err) return err;
    }
    err = index_keys(&p);
    if (err) return err;
    gguf->tensors_at = (size_t)(p.cur.at - gguf->file.bytes);
    WEFT_ASSERT(gguf->tensors_at <= gguf->file.n_bytes);
    return read_alignment(gguf, why);
}

weft_err wefti_model_gguf_parse(struct wefti_model_file *file, weft_gguf **gguf_out,
                                struct weft_errmsg *why) {
    weft_err err;
    *gguf_out = NULL;
    weft_gguf *gguf = calloc(1, sizeof *gguf);
    if (!gguf) {
        err = weft_err_set(why, WEFT_E_NOMEM, "%s: out of memory", file->path);
        wefti_model_file_close(file);
        goto cleanup;
    }
    gguf->file = *file;
    *file = (struct wefti_model_file){0};
    err = parse(gguf, why);
    if (err) goto cleanup;
    *gguf_out = gguf;
    gguf = NULL;
cleanup:
    weft_gguf_free(gguf);
    return err;
}

weft_err weft_gguf_open(const char *path, weft_gguf **gguf_out, struct weft_errmsg *why) {
    struct wefti_model_file file;
    *gguf_out = NULL;
    weft_err err = wefti_model_file_map(path, UINT64_MAX, &file, why);
    if (err) return err;
    if (wefti_model_packed_is(file.bytes, file.n_bytes)) {
        err = wefti_model_packed_narrow_to_gguf(&file, why);
        if (err) {
            wefti_model_file_close(&file);
            return err;
        }
    }
    return wefti_model_gguf_parse(&file, gguf_out, why);
}

void weft_gguf_free(weft_gguf *gguf) {
    if (!gguf) return;
    for (size_t i = 0; i < gguf->n_kvs; i++) {
        free((void *)gguf->kvs[i].strings);
    }
    free(gguf->kvs);
    free(gguf->by_key);
    wefti_model_file_close(&gguf->file);
    free(gguf);
}

/* ------------------------------------------------------------------------------- accessors --- */

size_t weft_gguf_n_keys(const weft_gguf *gguf) {
    return gguf->n_kvs;
}

struct weft_str weft_gguf_key(const weft_gguf *gguf, size_t idx, enum weft_gguf_type *type_out) {
    WEFT_ASSERT(idx < gguf->n_kvs);
    *type_out = gguf->kvs[idx].type;
    return gguf->kvs[idx].key;
}

/* An integer of any width: two's complement in `bits`. */
struct integer {
    bool negative;
    uint64_t bits;
};

#define LOAD_AS(type)                                                                              \
    do {                                                                                           \
        type value;                                                                                \
        memcpy(&value, at, sizeof value);                                                          \
        out->negative = value < (type)1 && value != 0;                                             \
        out->bits = (uint64_t)(int64_t)value;                                                      \
    } while (0)

static bool load_integer(enum weft_gguf_type type, const unsigned char *at, struct integer *out) {
    switch (type) {
    case WEFT_GGUF_U8:
    case WEFT_GGUF_BOOL:
        LOAD_AS(uint8_t);
        return true;
    case WEFT_GGUF_I8:
        LOAD_AS(int8_t);
        return true;
    case WEFT_GGUF_U16:
        LOAD_AS(uint16_t);
        return true;
    case WEFT_GGUF_I16:
        LOAD_AS(int16_t);
        return true;
    case WEFT_GGUF_U32:
        LOAD_AS(uint32_t);
        return true;
    case WEFT_GGUF_I32:
        LOAD_AS(int32_t);
        return true;
    case WEFT_GGUF_U64:
        LOAD_AS(uint64_t);
        return true;
    case WEFT_GGUF_I64:
        LOAD_AS(int64_t);
        return true;
    default:
        return false;
    }
}

static bool load_real(enum weft_gguf_type type, const unsigned char *at, double *out) {
    float single;
    if (type == WEFT_GGUF_F64) {
        memcpy(out, at, sizeof *out);
        return true;
    }
    if (type != WEFT_GGUF_F32) return false;
    memcpy(&single, at, sizeof single);
    *out = (double)single;
    return true;
}

static struct weft_str load_string(const unsigned char *at) {
    uint64_t len;
    memcpy(&len, at, sizeof len);
    return (struct weft_str){(const char *)at + sizeof len, len};
}

bool weft_gguf_u64(const weft_gguf *gguf, const char *key, uint64_t *out) {
    const struct wefti_model_gguf_kv *kv = wefti_model_gguf_find(gguf, key);
    struct integer value;
    if (!kv || kv->type == WEFT_GGUF_BOOL || !load_integer(kv->type, kv->value, &value)) {
        return false;
    }
    if (value.negative) return false;
    *out = value.bits;
    return true;
}

bool weft_gguf_f64(const weft_gguf *gguf, const char *key, double *out) {
    const struct wefti_model_gguf_kv *kv = wefti_model_gguf_find(gguf, key);
    return kv && load_real(kv->type, kv->value, out);
}

bool weft_gguf_bool(const weft_gguf *gguf, const char *key, bool *out) {
    const struct wefti_model_gguf_kv *kv = wefti_model_gguf_find(gguf, key);
    if (!kv || kv->type != WEFT_GGUF_BOOL) return false;
    *out = kv->value[0] != 0;
    return true;
}

bool weft_gguf_str(const weft_gguf *gguf, const char *key, struct weft_str *out) {
    const struct wefti_model_gguf_kv *kv = wefti_model_gguf_find(gguf, key);
    if (!kv || kv->type != WEFT_GGUF_STRING) return false;
    *out = load_string(kv->value);
    return true;
}

bool weft_gguf_array(const weft_gguf *gguf, const char *key, enum weft_gguf_type *type_out,
                     size_t *count_out) {
    const struct wefti_model_gguf_kv *kv = wefti_model_gguf_find(gguf, key);
    if (!kv || kv->type != WEFT_GGUF_ARRAY) return false;
    *type_out = kv->elem_type;
    *count_out = kv->count;
    return true;
}

/* The array under `key` when it has an element `idx`. */
static const struct wefti_model_gguf_kv *find_array(const weft_gguf *gguf, const char *key,
                                                    size_t idx) {
    const struct wefti_model_gguf_kv *kv = wefti_model_gguf_find(gguf, key);
    return kv && kv->type == WEFT_GGUF_ARRAY && idx < kv->count ? kv : NULL;
}

bool weft_gguf_array_str(const weft_gguf *gguf, const char *key, size_t idx, struct weft_str *out) {
    const struct wefti_model_gguf_kv *kv = find_array(gguf, key, idx);
    if (!kv || !kv->strings) return false;
    *out = load_string(kv->strings[idx]);
    return true;
}

/* Booleans, which have no accessor of their own in arrays, read as 0 and 1. */
bool weft_gguf_array_i64(const weft_gguf *gguf, const char *key, size_t idx, int64_t *out) {
    const struct wefti_model_gguf_kv *kv = find_array(gguf, key, idx);
    struct integer value;
    if (!kv) return false;
    const unsigned char *at = kv->value + idx * type_bytes(kv->elem_type);
    if (!load_integer(kv->elem_type, at, &value)) return false;
    if (!value.negative && value.bits > INT64_MAX) return false;
    *out = (int64_t)value.bits;
    return true;
}

bool weft_gguf_array_f64(const weft_gguf *gguf, const char *key, size_t idx, double *out) {
    const struct wefti_model_gguf_kv *kv = find_array(gguf, key, idx);
    return kv && load_real(kv->elem_type, kv->value + idx * type_bytes(kv->elem_type), out);
}
