/* adapters — the LoRA adapters that clients may name as models.
 *
 * Model    The router has the list: names and paths, from --lora and from clients. It tells every
 *          scheduler, again whenever one comes anew, and offers an adapter once all that serve have said that
 *          their workers have it. Requests for it go to schedulers that said so. One that was taken
 *          off the list stays with the schedulers until the calls that use it have ended, so that
 *          these can be resumed.
 * Lists    What calls read is an immutable copy, since they are prepared in other threads; a call holds
 *          the copy that was there when it came.
 * Threads  The loop's, but for finding a name in a copy.
 */
#ifndef WEFT_API_ADAPTERS_H
#define WEFT_API_ADAPTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "api/call.h"
#include "api/error.h"
#include "base/err.h"
#include "base/request.h"
#include "proto/proto.h"

#define WEFT_API_ADAPTER_NAME_BYTES_MAX 256
#define WEFT_API_ADAPTER_PATH_BYTES_MAX 4096

struct weft_api_state;

/* One that may be named; of a copy. */
struct weft_api_adapter_item {
    char *name, *path;
    uint32_t number; /* that "lora" names it by */
    uint64_t id;
    struct weft_digest digest;
};

struct weft_api_adapter_list {
    uint32_t n_holders, n;
    struct weft_api_adapter_item items[];
};

struct weft_api_adapter {
    char *name, *path;
    uint32_t number; /* the lowest that was free when it came: its own until it is gone */
    uint64_t id;
    uint32_t there;            /* at which schedulers, in their present sessions: bits */
    struct weft_digest digest; /* zeroes until one has it */
    uint64_t bytes;
    bool is_ready;   /* offered, and so it stays while one of them has it */
    bool is_first;   /* of the command line: nothing is served before it is there, or is given up */
    bool is_leaving; /* off the list, while calls use it */
    uint32_t n_calls;
    weft_api_call *waiting; /* the one that asked for it; NULL: none */
};

/* For the upstream, which knows no adapters. A scheduler has a new session, or none any more; it says
 * something of an adapter, or how it is. */
struct weft_api_adapters_ops {
    void (*linked)(struct weft_api_state *api, uint32_t scheduler);
    void (*unlinked)(struct weft_api_state *api, uint32_t scheduler);
    void (*told)(struct weft_api_state *api, uint32_t scheduler, const struct weft_msg_lora *lora);
    void (*reported)(struct weft_api_state *api);
    /* The schedulers that lack one of them: bits. */
    uint32_t (*lacking)(const struct weft_api_state *api, const struct weft_step_adapter *adapters,
                        uint32_t n);
};

struct weft_api_adapters {
    const struct weft_api_adapters_ops *ops; /* of adapters.c; NULL: it has not begun */
    struct weft_api_adapter **all;           /* [WEFT_LORAS_MAX] */
    uint32_t n;
    struct weft_api_adapter_list *list; /* NULL: none */
    bool have_served;                   /* those of the command line, by an earlier router */
    struct weft_errmsg failure;         /* of one of the command line; "": none */
};

/* What --lora says, a line for each: "NAME=PATH". Call it once. One that cannot be loaded is a
 * failure, but where they `have_served` before: then the others, and the model, are worth more than a
 * start that is all or nothing. INVAL, NOMEM. */
WEFT_MUST_CHECK weft_err weft_api_adapters_begin(struct weft_api_state *api, const char *lines,
                                                 bool have_served, struct weft_errmsg *why);
void wefti_api_adapters_fini(struct weft_api_state *api);

/* Whether those of the command line are there; *failure_out: why one cannot be; NULL: none failed. */
bool weft_api_adapters_are_ready(const struct weft_api_state *api, const char **failure_out);

/* The call waits until it is there. False: `error` is set. */
bool wefti_api_adapters_load(struct weft_api_state *api, weft_api_call *call, const char *name,
                             const char *path, struct weft_api_error *error);
bool wefti_api_adapters_unload(struct weft_api_state *api, const char *name,
                               struct weft_api_error *error);

/* A call that waits, or one that uses adapters, ends. */
void wefti_api_adapters_forget_call(struct weft_api_state *api, const weft_api_call *call);
void wefti_api_adapters_use(struct weft_api_state *api, const struct weft_step_adapter *adapters,
                            uint32_t n, bool begins);
/* Whether all of them are still with the schedulers. */
bool wefti_api_adapters_have(const struct weft_api_state *api,
                             const struct weft_step_adapter *adapters, uint32_t n);

/* The copy as it is now, held; NULL: there is none. Accepts NULL. */
const struct weft_api_adapter_list *wefti_api_adapters_hold(struct weft_api_state *api);
void wefti_api_adapters_let_go(const struct weft_api_adapter_list *list);
/* NULL: no such name, or number. `list` may be NULL. */
const struct weft_api_adapter_item *wefti_api_adapter_find(const struct weft_api_adapter_list *list,
                                                           const char *name, size_t len);
const struct weft_api_adapter_item *
wefti_api_adapter_numbered(const struct weft_api_adapter_list *list, int64_t number);

#endif
