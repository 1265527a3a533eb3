#include "api/keys.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/utf8.h"
#include "codec/digest.h"

#define BLANKS " \t"
#define LINE_END "\r\n"

void weft_api_keys_fini(struct weft_api_keys *keys) {
    for (uint32_t i = 0; i < keys->n; i++)
        free(keys->keys[i].text);
    keys->n = 0;
}

const struct weft_api_key *weft_api_keys_find(const struct weft_api_keys *keys, const char *text,
                                              size_t len) {
    const struct weft_api_key *found = NULL;
    for (uint32_t i = 0; i < keys->n; i++) {
        const char *wanted = keys->keys[i].text;
        size_t n = strlen(wanted);
        WEFT_ASSERT(n > 0);
        unsigned diff = len != n;
        for (size_t k = 0; k < len; k++)
            diff |= (unsigned)((unsigned char)text[k] ^ (unsigned char)wanted[k % n]);
        if (diff == 0) found = &keys->keys[i];
    }
    return found;
}

static weft_err add(struct weft_api_keys *keys, const struct weft_api_key *key, size_t len,
                    struct weft_errmsg *why) {
    if (len == 0 || memchr(key->text, '\0', len))
        return weft_err_set(why, WEFT_E_INVAL, "a key is empty");
    if (weft_api_keys_find(keys, key->text, len))
        return weft_err_set(why, WEFT_E_INVAL, "the same key twice");
    if (keys->n == WEFT_API_KEYS_MAX)
        return weft_err_set(why, WEFT_E_FULL, "more than %d keys", WEFT_API_KEYS_MAX);
    struct weft_api_key *own = &keys->keys[keys->n];
    *own = *key;
    own->text = strndup(key->text, len);
    if (!own->text) return weft_err_set(why, WEFT_E_NOMEM, "out of memory");
    own->tenant = own->name[0] ? weft_digest_u64("tenant", own->name, strlen(own->name))
                               : weft_digest_u64("key", own->text, len);
    keys->n++;
    return WEFT_OK;
}

weft_err weft_api_keys_add(struct weft_api_keys *keys, const char *text, size_t len,
                           struct weft_errmsg *why) {
    const struct weft_api_key key = {
        .text = (char *)(uintptr_t)text, .is_admin = true, .weight = 1};
    return add(keys, &key, len, why);
}

/* What follows a key: `word` is NAME=VALUE, or a name alone. */
static weft_err take_word(struct weft_api_key *key, const char *word, size_t len,
                          struct weft_errmsg *why) {
    const char *equals = memchr(word, '=', len);
    size_t name_len = equals ? (size_t)(equals - word) : len;
    size_t n = equals ? len - name_len - 1 : 0;
    if (equals && name_len == 4 && memcmp(word, "name", 4) == 0) {
        if (n == 0 || n > WEFT_API_KEY_NAME_BYTES_MAX)
            return weft_err_set(why, WEFT_E_INVAL, "a name has 1 to %d bytes",
                                WEFT_API_KEY_NAME_BYTES_MAX);
        char given[WEFT_API_KEY_NAME_BYTES_MAX + 1];
        memcpy(given, equals + 1, n);
        given[n] = '\0';
        memcpy(key->name, given, n + 1);
        weft_utf8_printable(key->name);
        if (strcmp(key->name, given) != 0)
            return weft_err_set(why, WEFT_E_INVAL, "a name is not printable text");
        return WEFT_OK;
    }
    if (equals && name_len == 6 && memcmp(word, "weight", 6) == 0) {
        uint32_t weight = 0;
        for (size_t i = 0; i < n && weight <= WEFT_API_KEY_WEIGHT_MAX; i++) {
            unsigned digit = (unsigned)(unsigned char)equals[1 + i] - '0';
            weight = digit <= 9 ? weight * 10 + digit : WEFT_API_KEY_WEIGHT_MAX + 1;
        }
        if (weight < 1 || weight > WEFT_API_KEY_WEIGHT_MAX)
            return weft_err_set(why, WEFT_E_INVAL, "a weight is a whole number from 1 to %d",
                                WEFT_API_KEY_WEIGHT_MAX);
        key->weight = weight;
        return WEFT_OK;
    }
    if (!equals && len == 5 && memcmp(word, "admin", 5) == 0) {
        key->is_admin = true;
        return WEFT_OK;
    }
    /* Not shown: it may be a part of a key. */
    return weft_err_set(why, WEFT_E_INVAL,
                        "after a key only name=TEXT, weight=N and admin may follow");
}

static weft_err add_line(struct weft_api_keys *keys, const char *line, size_t len,
                         struct weft_errmsg *why) {
    const char *end = line + len;
    line += strspn(line, BLANKS);
    if (line >= end) return WEFT_OK;
    size_t key_len = strcspn(line, BLANKS LINE_END);
    struct weft_api_key key = {.text = (char *)(uintptr_t)line, .weight = 1};
    for (const char *at = line + key_len; at < end;) {
        at += strspn(at, BLANKS);
        if (at >= end) break;
        size_t n = strcspn(at, BLANKS LINE_END); /* 0: a lone CR, which no word begins with */
        weft_err err = take_word(&key, at, n, why);
        if (err) return err;
        at += n;
    }
    if (key.is_admin) keys->has_admins = true;
    return add(keys, &key, key_len, why);
}

weft_err weft_api_keys_add_lines(struct weft_api_keys *keys, const char *text,
                                 struct weft_errmsg *why) {
    unsigned number = 1;
    for (const char *at = text; *at; number++) {
        size_t len = strcspn(at, "\n");
        struct weft_errmsg detail = {""};
        size_t line_len = len && at[len - 1] == '\r' ? len - 1 : len;
        weft_err err = add_line(keys, at, line_len, &detail);
        if (err) return weft_err_set(why, err, "line %u: %s", number, detail.text);
        at += len + (at[len] == '\n');
    }
    return WEFT_OK;
}
