#include "chat_session.h"

#include <errno.h>
#include <jansson.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"
#include "engine/session_file.h"

#define MESSAGES_BYTES_MAX (256u << 20)

/* Nobody calls it off: this process has one thread for all of it. */
static const _Atomic bool never;

/* ---------------------------------------------------------------------------------- names --- */

/* The folder of a path, which the caller frees, and the name there, which points into it. */
static weft_err split(const char *path, char **dir_out, const char **name_out,
                      struct weft_errmsg *why) {
    *name_out = "";
    if (asprintf(dir_out, "%s%s", strchr(path, '/') ? "" : "./", path) < 0) {
        *dir_out = NULL;
        return weft_err_set(why, WEFT_E_NOMEM, "no memory for a name");
    }
    char *slash = strrchr(*dir_out, '/');
    WEFT_ASSERT(slash != NULL);
    *name_out = slash + 1;
    if (slash[1] == '\0')
        return weft_err_set(why, WEFT_E_INVAL, "--session: %s is a folder, and not a file", path);
    if (slash == *dir_out) /* "/name" */
        return weft_err_set(why, WEFT_E_INVAL, "a session's file does not lie in /");
    *slash = '\0';
    return WEFT_OK;
}

/* Told before anything is said: at the end the conversation would be lost. */
static weft_err check_folder(const char *path, struct weft_errmsg *why) {
    char *dir = NULL;
    const char *name = NULL;
    weft_err err = split(path, &dir, &name, why);
    if (!err && dir && access(dir, W_OK | X_OK) != 0)
        err = weft_err_set(why, WEFT_E_INVAL, "--session: cannot write into the folder %s: %s", dir,
                           strerror(errno));
    free(dir);
    return err;
}

/* ------------------------------------------------------------------------------- messages --- */

static weft_err add_message(struct weft_conversation *c, const json_t *message,
                            struct weft_errmsg *why) {
    static const char *const roles[] = {"user", "assistant"};
    const char *role = json_string_value(json_object_get(message, "role"));
    const json_t *content = json_object_get(message, "content");
    struct weft_str text = {json_string_value(content), json_string_length(content)};
    if (role && text.data && !strcmp(role, "system") && c->n == 0)
        return weft_conversation_set_system(c, text, why);
    for (size_t i = 0; role && text.data && i < sizeof roles / sizeof roles[0]; i++) {
        if (!strcmp(role, roles[i])) return weft_conversation_add(c, roles[i], text, why);
    }
    return weft_err_set(why, WEFT_E_PROTO, "a message is neither a user's nor an assistant's text");
}

static weft_err add_messages(struct weft_conversation *c, const char *name, const char *text,
                             size_t len, struct weft_errmsg *why) {
    json_error_t fault;
    json_t *body = json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &fault);
    const json_t *messages = json_object_get(body, "messages");
    weft_err err = WEFT_OK;
    struct weft_errmsg detail = {"it has no list of messages"};
    if (!json_is_array(messages)) err = WEFT_E_PROTO;
    for (size_t i = 0; !err && i < json_array_size(messages); i++)
        err = add_message(c, json_array_get(messages, i), &detail);
    json_decref(body);
    return err ? weft_err_set(why, err, "%s is no conversation: %s", name, detail.text) : WEFT_OK;
}

weft_err weft_chat_load(struct weft_conversation *c, const char *path, struct weft_errmsg *why) {
    char *text = NULL, *name = NULL;
    size_t len = 0;
    weft_err err = check_folder(path, why);
    if (err) return err;
    if (asprintf(&name, "%s.json", path) < 0)
        return weft_err_set(why, WEFT_E_NOMEM, "no memory for a name");
    err = weft_file_read(name, WEFT_FILE_REGULAR, MESSAGES_BYTES_MAX, &text, &len, why);
    bool is_there = err != WEFT_E_NOTFOUND;
    if (is_there && !err) err = add_messages(c, name, text, len, why);
    free(text);
    if (err || !is_there) {
        free(name);
        return is_there ? err : WEFT_OK;
    }
    free(c->saved_as); /* what was read there may be replaced there */
    c->saved_as = name;
    return WEFT_OK;
}

/* --------------------------------------------------------------------------------- blocks --- */

/* Where sequences of weft_generate lie: one after the other, windowed ones in a ring. NULL: no memory. */
static uint32_t *place_blocks(const struct weft_eng_info *info, uint32_t n_tokens,
                              struct weft_eng_session_blocks *blocks_out) {
    uint32_t n = n_tokens / info->block_size;
    uint32_t *storage = malloc(2 * ((size_t)n + 1) * sizeof *storage);
    if (!storage) return NULL;
    for (uint32_t kind = 0; kind < WEFT_KV_KINDS; kind++) {
        uint32_t *blocks = storage + kind * ((size_t)n + 1);
        uint32_t n_kept = weft_eng_session_n_blocks(info, (enum weft_kv_kind)kind, n_tokens);
        uint32_t ring = kind == WEFT_KV_WINDOWED ? info->n_window_blocks : info->n_blocks;
        for (uint32_t i = 0; i < n_kept; i++)
            blocks[i] = (n - n_kept + i) % ring;
        blocks_out->blocks[kind] = blocks;
        blocks_out->n[kind] = n_kept;
    }
    return storage;
}

/* A space is that of no adapter and no salt: 0, or 1 where rope turns long prompts otherwise. */
static weft_err read_blocks(weft_eng *eng, weft_eng_session_file *file,
                            struct weft_chat_cache *cache, struct weft_errmsg *why) {
    const struct weft_eng_info *info = weft_eng_info(eng);
    const struct weft_eng_session *session = weft_eng_session_of(file);
    struct weft_eng_session_blocks blocks;
    if (session->space_hi != 0 || session->space_lo > 1)
        return weft_err_set(why, WEFT_E_UNSUPPORTED,
                            "it was not computed of its tokens alone, but with adapters or a salt");
    if (session->n_tokens > info->max_model_len ||
        session->n_tokens / info->block_size > info->n_blocks)
        return weft_err_set(why, WEFT_E_TOOBIG, "it has %u tokens, there is room for %u",
                            session->n_tokens, info->max_model_len);
    uint32_t *storage = place_blocks(info, session->n_tokens, &blocks);
    if (!storage) return weft_err_set(why, WEFT_E_NOMEM, "no memory to restore a session");
    weft_err err = weft_eng_session_read(eng, file, &blocks, why);
    free(storage);
    if (err) return err;
    memcpy(cache->tokens, session->tokens, session->n_tokens * sizeof *cache->tokens);
    cache->n_tokens = session->n_tokens;
    cache->is_long = session->space_lo == 1;
    return WEFT_OK;
}

void weft_chat_restore(weft_eng *eng, const char *path, struct weft_chat_cache *cache) {
    weft_eng_session_file *file = NULL;
    struct weft_errmsg why = {""};
    char *dir = NULL;
    const char *name = NULL;
    weft_err err = split(path, &dir, &name, &why);
    const struct weft_eng_session_folder folder = {dir, UINT64_MAX, &never};
    cache->n_tokens = 0;
    if (weft_eng_info(eng)->is_recurrent) err = WEFT_E_NOTFOUND; /* it begins anew with each turn */
    if (!err) err = weft_eng_session_open(eng, &folder, name, 0, &file, &why);
    if (!err) err = read_blocks(eng, file, cache, &why);
    weft_eng_session_close(file);
    free(dir);
    if (err && err != WEFT_E_NOTFOUND)
        (void)fprintf(stderr, "weft: %s; the conversation is computed again\n", why.text);
}

static weft_err save_blocks(const weft_eng *eng, const char *path,
                            const struct weft_chat_cache *cache, struct weft_errmsg *why) {
    const struct weft_eng_info *info = weft_eng_info(eng);
    uint32_t n_tokens = cache->n_tokens / info->block_size * info->block_size;
    struct weft_eng_session session = {
        .space_lo = cache->is_long, .tokens = cache->tokens, .n_tokens = n_tokens};
    char *dir = NULL;
    const char *name = NULL;
    uint64_t n_bytes = 0;
    if (n_tokens == 0 || info->is_recurrent) return WEFT_OK; /* without its state it is of no use */
    uint32_t *storage = place_blocks(info, n_tokens, &session.blocks);
    if (!storage) return weft_err_set(why, WEFT_E_NOMEM, "no memory to save a session");
    weft_err err = split(path, &dir, &name, why);
    const struct weft_eng_session_folder folder = {dir, UINT64_MAX, &never};
    if (!err) err = weft_eng_session_save(eng, &folder, name, &session, &n_bytes, why);
    free(storage);
    free(dir);
    return err;
}

weft_err weft_chat_keep(const weft_eng *eng, struct weft_conversation *c, const char *path,
                        const struct weft_chat_cache *cache, struct weft_errmsg *why) {
    char *name = NULL;
    if (c->n == 0) return WEFT_OK;
    if (asprintf(&name, "%s.json", path) < 0)
        return weft_err_set(why, WEFT_E_NOMEM, "no memory for a name");
    weft_err err = weft_conversation_save(c, name, why);
    free(name);
    return err ? err : save_blocks(eng, path, cache, why);
}
