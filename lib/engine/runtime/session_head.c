#include "runtime/session_head.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/check.h"
#include "base/limits.h"

static const char magic[WEFTI_SESSION_MAGIC_BYTES] = {'W', 'E', 'F', 'T', 'S', 'E', 'S', 'S'};

uint32_t wefti_session_n_blocks(enum weft_kv_kind kind, const struct wefti_session_want *facts,
                                uint32_t n_tokens) {
    uint32_t block_size = facts->block_size, window = facts->window, n_all = n_tokens / block_size;
    if (kind == WEFT_KV_FULL) return n_all;
    if (window == 0) return facts->has_state;
    uint32_t low = n_tokens >= window ? n_tokens - window + 1 : 0; /* that the next one sees */
    return n_all - low / block_size;
}

bool wefti_session_has_magic(const char begin[WEFTI_SESSION_MAGIC_BYTES]) {
    return memcmp(begin, magic, sizeof magic) == 0;
}

void wefti_session_head_init(struct wefti_session_head *head,
                             const struct wefti_session_want *facts, uint32_t n_tokens) {
    *head = (struct wefti_session_head){
        .version = WEFTI_SESSION_VERSION,
        .head_bytes = sizeof *head,
        .tenant = facts->tenant,
        .block_size = facts->block_size,
        .window = facts->window,
        .kv_dtype = facts->kv_dtype,
        .n_tokens = n_tokens,
    };
    memcpy(head->magic, magic, sizeof magic);
    (void)snprintf(head->model_name, sizeof head->model_name, "%s", facts->model_name);
    (void)snprintf(head->fingerprint, sizeof head->fingerprint, "%s", facts->fingerprint);
    for (uint32_t kind = 0; kind < WEFT_KV_KINDS; kind++) {
        head->block_bytes[kind] = facts->block_bytes[kind];
        head->n_blocks[kind] = wefti_session_n_blocks((enum weft_kv_kind)kind, facts, n_tokens);
    }
}

uint64_t wefti_session_front_bytes(const struct wefti_session_head *head) {
    uint64_t n_blocks = (uint64_t)head->n_blocks[WEFT_KV_FULL] + head->n_blocks[WEFT_KV_WINDOWED];
    return sizeof *head + sizeof(uint32_t) * (uint64_t)head->n_tokens +
           sizeof(struct wefti_session_digest) * n_blocks;
}

uint64_t wefti_session_file_bytes(const struct wefti_session_head *head) {
    uint64_t n_bytes = wefti_session_front_bytes(head);
    for (uint32_t kind = 0; kind < WEFT_KV_KINDS; kind++)
        n_bytes += head->n_blocks[kind] * head->block_bytes[kind];
    return n_bytes;
}

static struct wefti_session_digest digest_of(XXH128_hash_t hash) {
    return (struct wefti_session_digest){hash.low64, hash.high64};
}

struct wefti_session_digest wefti_session_block_digest(const void *block, uint64_t n_bytes) {
    return digest_of(XXH3_128bits(block, n_bytes));
}

/* The head's own is chained in front of the rest, so that the rest need not be copied. */
struct wefti_session_digest wefti_session_front_digest(const void *front, uint64_t n_bytes) {
    struct wefti_session_head head;
    WEFT_ASSERT(n_bytes >= sizeof head);
    memcpy(&head, front, sizeof head);
    head.digest = (struct wefti_session_digest){0, 0};
    uint64_t seed = XXH3_64bits(&head, sizeof head);
    const char *rest = (const char *)front + sizeof head;
    return digest_of(XXH3_128bits_withSeed(rest, n_bytes - sizeof head, seed));
}

/* ---------------------------------------------------------------------------------- checks --- */

static bool is_text(const char *text, size_t n_bytes) {
    return memchr(text, 0, n_bytes) != NULL;
}

static const char *kv_name(uint32_t kv_dtype) {
    static const char *const names[WEFTI_SESSION_KV_COUNT] = {"f32", "bf16", "f16", "int8"};
    return kv_dtype < WEFTI_SESSION_KV_COUNT ? names[kv_dtype] : "of no type";
}

/* Each fact has a sentence of its own: what differs must be what is printed. */
static weft_err check_cache(const struct wefti_session_head *head, const char *name,
                            const struct wefti_session_want *want, struct weft_errmsg *why) {
    if (head->block_size != want->block_size)
        return weft_err_set(why, WEFT_E_PROTO, "'%s' has KV blocks of %u tokens, this server of %u",
                            name, head->block_size, want->block_size);
    if (head->kv_dtype != want->kv_dtype)
        return weft_err_set(why, WEFT_E_PROTO,
                            "'%s' has keys and values that are %s, this server's are %s", name,
                            kv_name(head->kv_dtype), kv_name(want->kv_dtype));
    if (head->window != want->window)
        return weft_err_set(why, WEFT_E_PROTO, "'%s' has a window of %u tokens, this server of %u",
                            name, head->window, want->window);
    for (uint32_t kind = 0; kind < WEFT_KV_KINDS; kind++) {
        if (head->block_bytes[kind] != want->block_bytes[kind] && kind > 0 && want->has_state)
            return weft_err_set(why, WEFT_E_PROTO,
                                "'%s' has states of %" PRIu64 " bytes, this server of %" PRIu64,
                                name, head->block_bytes[kind], want->block_bytes[kind]);
        if (head->block_bytes[kind] != want->block_bytes[kind])
            return weft_err_set(why, WEFT_E_PROTO,
                                "'%s' has KV blocks of %" PRIu64 " bytes in layers %s a window, "
                                "this server of %" PRIu64,
                                name, head->block_bytes[kind],
                                kind == WEFT_KV_FULL ? "without" : "with", want->block_bytes[kind]);
    }
    return WEFT_OK;
}

/* Whose it is, and of which model: to be told apart from damage. */
static weft_err check_origin(const struct wefti_session_head *head, const char *name,
                             const struct wefti_session_want *want, struct weft_errmsg *why) {
    if (strcmp(head->model_name, want->model_name) != 0)
        return weft_err_set(why, WEFT_E_PROTO, "'%s' is a session of the model %s, not of %s", name,
                            head->model_name, want->model_name);
    if (strcmp(head->fingerprint, want->fingerprint) != 0)
        return weft_err_set(why, WEFT_E_PROTO,
                            "'%s' was computed with other weights, types or instructions (%s) than "
                            "this server has (%s)",
                            name, head->fingerprint, want->fingerprint);
    weft_err err = check_cache(head, name, want, why);
    if (err) return err;
    if (head->tenant != want->tenant)
        return weft_err_set(why, WEFT_E_PROTO, "'%s' was saved with another API key", name);
    return WEFT_OK;
}

weft_err wefti_session_check_head(const struct wefti_session_head *head, uint64_t file_bytes,
                                  const char *name, const struct wefti_session_want *want,
                                  struct weft_errmsg *why) {
    if (!wefti_session_has_magic(head->magic))
        return weft_err_set(why, WEFT_E_PROTO, "'%s' is no session's file", name);
    if (head->version == WEFTI_SESSION_VERSION && head->head_bytes != sizeof *head)
        return weft_err_set(why, WEFT_E_PROTO, "'%s' is damaged: its head has %u bytes, not %zu",
                            name, head->head_bytes, sizeof *head);
    if (head->version != WEFTI_SESSION_VERSION)
        return weft_err_set(why, WEFT_E_PROTO,
                            "'%s' is a session's file of version %u; this server reads version %d",
                            name, head->version, WEFTI_SESSION_VERSION);
    if (!is_text(head->model_name, sizeof head->model_name) ||
        !is_text(head->fingerprint, sizeof head->fingerprint))
        return weft_err_set(why, WEFT_E_PROTO, "'%s' is damaged: its names have no end", name);
    weft_err err = check_origin(head, name, want, why);
    if (err) return err;
    bool is_whole = head->n_tokens > 0 && head->n_tokens <= WEFT_CONTEXT_MAX &&
                    head->n_tokens % want->block_size == 0;
    for (uint32_t kind = 0; is_whole && kind < WEFT_KV_KINDS; kind++)
        is_whole = head->n_blocks[kind] ==
                   wefti_session_n_blocks((enum weft_kv_kind)kind, want, head->n_tokens);
    if (!is_whole)
        return weft_err_set(why, WEFT_E_PROTO, "'%s' is damaged: %u tokens in %u and %u blocks",
                            name, head->n_tokens, head->n_blocks[0], head->n_blocks[1]);
    uint64_t wanted = wefti_session_file_bytes(head);
    if (file_bytes == wanted) return WEFT_OK;
    return weft_err_set(why, WEFT_E_PROTO,
                        "'%s' has %" PRIu64 " bytes and should have %" PRIu64 ": it is %s", name,
                        file_bytes, wanted, file_bytes < wanted ? "cut short" : "damaged");
}

weft_err wefti_session_check_front(const void *front, const char *name,
                                   const struct wefti_session_want *want, struct weft_errmsg *why) {
    struct wefti_session_head head;
    memcpy(&head, front, sizeof head);
    struct wefti_session_digest digest =
        wefti_session_front_digest(front, wefti_session_front_bytes(&head));
    if (digest.lo != head.digest.lo || digest.hi != head.digest.hi)
        return weft_err_set(why, WEFT_E_PROTO, "'%s' is damaged: its digest is another", name);
    const char *at = (const char *)front + sizeof head;
    for (uint32_t i = 0; i < head.n_tokens; i++) {
        uint32_t token;
        memcpy(&token, at + i * sizeof token, sizeof token);
        if (token >= want->n_vocab)
            return weft_err_set(why, WEFT_E_PROTO, "'%s' has token %u of a vocabulary of %u", name,
                                token, want->n_vocab);
    }
    return WEFT_OK;
}
