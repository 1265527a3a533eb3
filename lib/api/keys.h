/* keys — who may ask: API keys, each with a name for the log and a weight.
 *
 * Lines    KEY [name=TEXT] [weight=N] [admin], separated by spaces or tabs. A name is printable text of
 *          at most WEFT_API_KEY_NAME_BYTES_MAX bytes; a weight is from 1 to WEFT_API_KEY_WEIGHT_MAX (1).
 *          An admin may do what all tenants notice; where no line says admin everybody is one.
 * Tenants  Keys of one name are one tenant, so that a tenant may change its key; one without a name is
 *          a tenant by itself.
 * Memory   The keys are copied; the struct is the caller's, zeroed at first.
 * Threads  One.
 * Checked in tests/unit/test_api_keys.c.
 */
#ifndef WEFT_API_KEYS_H
#define WEFT_API_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define WEFT_API_KEYS_MAX 64
#define WEFT_API_KEY_NAME_BYTES_MAX 64
#define WEFT_API_KEY_WEIGHT_MAX 1000

struct weft_api_key {
    char *text;                                 /* owned */
    char name[WEFT_API_KEY_NAME_BYTES_MAX + 1]; /* "": it has none */
    bool is_admin;
    uint32_t weight;
    uint64_t
        tenant; /* who pays: the same for every router, and for all keys of one name; never 0 */
};

struct weft_api_keys {
    uint32_t n;      /* 0: anybody may ask */
    bool has_admins; /* a line says so */
    struct weft_api_key keys[WEFT_API_KEYS_MAX];
};

void weft_api_keys_fini(struct weft_api_keys *keys);

/* Adds a key without a name: an admin, who set up the server. INVAL: empty, or there already; FULL;
 * NOMEM. */
WEFT_MUST_CHECK weft_err weft_api_keys_add(struct weft_api_keys *keys, const char *text, size_t len,
                                           struct weft_errmsg *why);

/* Adds the keys of a file's text, one per line; empty lines are passed over. INVAL, FULL, NOMEM:
 * `why` names the line, and no key. Those added before it stay. */
WEFT_MUST_CHECK weft_err weft_api_keys_add_lines(struct weft_api_keys *keys, const char *text,
                                                 struct weft_errmsg *why);

/* The key that `text` is; NULL: none. Constant time, however much of it is right. */
const struct weft_api_key *weft_api_keys_find(const struct weft_api_keys *keys, const char *text,
                                              size_t len);

#endif
