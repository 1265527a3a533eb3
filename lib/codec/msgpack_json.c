#include "codec/msgpack_json.h"

#include <math.h>
#include <string.h>

#include "base/str.h"
#include "codec/msgpack.h"

struct decoder {
    const char *bytes;
    size_t len, at;
    struct weft_str field; /* the outermost map's, whose value is being read; in `bytes` */
    size_t depth;          /* of maps and arrays */
    struct weft_errmsg *why;
};

static json_t *decode(struct decoder *d);

static json_t *refuse(const struct decoder *d, json_t *value, const char *text) {
    json_decref(value);
    (void)weft_err_set(d->why, WEFT_E_PROTO, "%s%.*s%s%s", d->field.len ? "'" : "",
                       (int)d->field.len, d->field.len ? d->field.data : "",
                       d->field.len ? "': " : "", text);
    return NULL;
}

static json_t *decode_array(struct decoder *d, size_t n) {
    json_t *array = json_array();
    d->depth++;
    for (size_t i = 0; i < n; i++) {
        json_t *item = decode(d);
        if (!item || json_array_append_new(array, item) != 0) {
            json_decref(array);
            return NULL;
        }
    }
    d->depth--;
    return array;
}

static json_t *decode_map(struct decoder *d, size_t n) {
    json_t *object = json_object();
    size_t depth = d->depth++;
    for (size_t i = 0; i < n; i++) {
        struct weft_mp_item key;
        if (depth == 0) d->field.len = 0;
        if (weft_msgpack_item(d->bytes, d->len, &d->at, &key) != WEFT_MP_OK ||
            key.type != WEFT_MP_TEXT)
            return refuse(d, object, "the keys of a map must be strings");
        if (depth == 0) d->field = (struct weft_str){key.bytes, key.len < 64 ? key.len : 64};
        if (memchr(key.bytes, 0, key.len)) return refuse(d, object, "a key holds a NUL");
        if (json_object_getn(object, key.bytes, key.len))
            return refuse(d, object, "a map holds a key twice");
        json_t *item = decode(d);
        if (!item) {
            json_decref(object);
            return NULL;
        }
        if (json_object_setn_new(object, key.bytes, key.len, item) != 0)
            return refuse(d, object, "a key is not valid UTF-8");
    }
    d->depth = depth;
    return object;
}

/* Recursive, as deep as weft_msgpack_scan lets a value be. */
static json_t *decode(struct decoder *d) {
    struct weft_mp_item item;
    json_t *value = NULL;
    if (weft_msgpack_item(d->bytes, d->len, &d->at, &item) != WEFT_MP_OK)
        return refuse(d, NULL, "malformed MessagePack");
    switch (item.type) {
    case WEFT_MP_NIL:
        return json_null();
    case WEFT_MP_BOOL:
        return json_boolean(item.is_true);
    case WEFT_MP_INT:
        return json_integer(item.i);
    case WEFT_MP_UINT: /* over INT64_MAX; a real keeps it a number out of range */
        return json_real((double)item.u);
    case WEFT_MP_FLOAT:
        value = isfinite(item.d) ? json_real(item.d) : NULL;
        return value ? value : refuse(d, NULL, "a number is not finite");
    case WEFT_MP_TEXT:
        value = json_stringn(item.bytes, item.len);
        return value ? value : refuse(d, NULL, "a string is not valid UTF-8");
    case WEFT_MP_ARRAY:
        return decode_array(d, item.len);
    case WEFT_MP_MAP:
        return decode_map(d, item.len);
    case WEFT_MP_EXT:
        break;
    }
    return refuse(d, NULL, "extension types are not supported");
}

json_t *weft_msgpack_to_json(const char *bytes, size_t len, struct weft_errmsg *why) {
    struct decoder d = {.bytes = bytes, .len = len, .why = why};
    (void)weft_err_set(why, WEFT_E_NOMEM, "out of memory");
    return decode(&d);
}
