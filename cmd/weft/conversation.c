#include "conversation.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/file.h"
#include "json_text.h"

static void free_message(struct weft_tmpl_message *message) {
    free((char *)(uintptr_t)message->content);
    *message = (struct weft_tmpl_message){0};
}

void weft_conversation_fini(struct weft_conversation *c) {
    while (c->n > 0)
        free_message(&c->messages[--c->n]);
    free(c->messages);
    free(c->saved_as);
    *c = (struct weft_conversation){0};
}

static weft_err make_room(struct weft_conversation *c, struct weft_errmsg *why) {
    if (c->n < c->cap) return WEFT_OK;
    if (c->n >= WEFT_CONVERSATION_MESSAGES_MAX)
        return weft_err_set(why, WEFT_E_FULL, "the chat has %u messages; /reset begins a new one",
                            c->n);
    uint32_t cap = c->cap ? 2 * c->cap : 16;
    void *grown = realloc(c->messages, cap * sizeof *c->messages);
    if (!grown) return weft_err_set(why, WEFT_E_NOMEM, "no memory for another message");
    c->messages = grown;
    c->cap = cap;
    return WEFT_OK;
}

static weft_err make_message(const char *role, struct weft_str text,
                             struct weft_tmpl_message *message_out, struct weft_errmsg *why) {
    char *copy = malloc(text.len + 1);
    if (!copy) return weft_err_set(why, WEFT_E_NOMEM, "no memory for another message");
    if (text.len > 0) memcpy(copy, text.data, text.len);
    copy[text.len] = '\0';
    *message_out = (struct weft_tmpl_message){role, copy, strlen(role), text.len};
    return WEFT_OK;
}

weft_err weft_conversation_add(struct weft_conversation *c, const char *role, struct weft_str text,
                               struct weft_errmsg *why) {
    weft_err err = make_room(c, why);
    if (!err) err = make_message(role, text, &c->messages[c->n], why);
    if (!err) c->n++;
    return err;
}

void weft_conversation_drop_last(struct weft_conversation *c) {
    WEFT_ASSERT(c->n > c->has_system);
    free_message(&c->messages[--c->n]);
}

static void take_out_system(struct weft_conversation *c) {
    if (!c->has_system) return;
    free_message(&c->messages[0]);
    c->n--;
    memmove(c->messages, c->messages + 1, c->n * sizeof *c->messages);
    c->has_system = false;
}

weft_err weft_conversation_set_system(struct weft_conversation *c, struct weft_str text,
                                      struct weft_errmsg *why) {
    struct weft_tmpl_message message;
    if (text.len == 0) {
        take_out_system(c);
        return WEFT_OK;
    }
    weft_err err = make_room(c, why);
    if (!err) err = make_message("system", text, &message, why);
    if (err) return err;
    take_out_system(c);
    memmove(c->messages + 1, c->messages, c->n * sizeof *c->messages);
    c->messages[0] = message;
    c->n++;
    c->has_system = true;
    return WEFT_OK;
}

void weft_conversation_reset(struct weft_conversation *c) {
    while (c->n > c->has_system)
        weft_conversation_drop_last(c);
    c->n_left_out = 0;
}

/* To the next message of a user; false: the last message would be left out. */
static bool leave_out_a_turn(struct weft_conversation *c) {
    uint32_t next = c->has_system + c->n_left_out + 1;
    while (next < c->n && strcmp(c->messages[next].role, "user") != 0)
        next++;
    if (next >= c->n) return false;
    c->n_left_out = next - c->has_system;
    return true;
}

weft_err weft_conversation_prompt(struct weft_conversation *c, const weft_tmpl *tmpl,
                                  const weft_tokenizer *tok, size_t ids_max, uint32_t **ids_out,
                                  size_t *n_out, struct weft_errmsg *why) {
    weft_err err = WEFT_OK;
    *ids_out = NULL;
    *n_out = 0;
    struct weft_tmpl_message *shown = calloc((size_t)c->n + 1, sizeof *shown);
    if (!shown) return weft_err_set(why, WEFT_E_NOMEM, "no memory for a prompt");
    while (!err) {
        uint32_t first = c->has_system + c->n_left_out, n = 0;
        WEFT_ASSERT(first < c->n);
        if (c->has_system) shown[n++] = c->messages[0];
        memcpy(shown + n, c->messages + first, (c->n - first) * sizeof *shown);
        err = weft_talk_encode(tmpl, tok, shown, n + c->n - first, ids_out, n_out, why);
        if (err || *n_out <= ids_max) break;
        free(*ids_out);
        *ids_out = NULL;
        if (!leave_out_a_turn(c))
            err = weft_err_set(why, WEFT_E_TOOBIG,
                               "the message makes a prompt of %zu tokens; there is room for %zu",
                               *n_out, ids_max);
    }
    free(shown);
    return err;
}

static void write_messages(const struct weft_conversation *c, FILE *file) {
    (void)fputs("{\"messages\": [", file);
    for (uint32_t i = 0; i < c->n; i++) {
        (void)fprintf(file, "%s\n  {\"role\": \"%s\", \"content\": ", i ? "," : "",
                      c->messages[i].role);
        weft_print_json_string(file, c->messages[i].content, c->messages[i].content_len);
        (void)fputc('}', file);
    }
    (void)fputs("\n]}\n", file);
}

static weft_err write_file(const struct weft_conversation *c, const char *path, FILE *file,
                           struct weft_errmsg *why) {
    errno = 0;
    write_messages(c, file);
    bool failed = ferror(file) != 0;
    if (fclose(file) != 0 || failed) return weft_err_errno(why, errno, "cannot write %s", path);
    return WEFT_OK;
}

/* A full disk must not cost the copy that is there: the new one is whole before it takes its place. */
static weft_err replace(const struct weft_conversation *c, const char *path,
                        struct weft_errmsg *why) {
    struct weft_file_fresh fresh;
    weft_err err = weft_file_fresh_open(path, &fresh, why);
    if (err) return err;
    write_messages(c, fresh.out);
    return weft_file_fresh_keep(&fresh, why);
}

weft_err weft_conversation_save(struct weft_conversation *c, const char *path,
                                struct weft_errmsg *why) {
    if (c->saved_as && !strcmp(c->saved_as, path)) return replace(c, path, why);
    char *name = strdup(path);
    if (!name) return weft_err_set(why, WEFT_E_NOMEM, "no memory for a name");
    FILE *file = fopen(path, "wxe");
    if (!file) {
        int error = errno;
        free(name);
        if (error == EEXIST) return weft_err_set(why, WEFT_E_EXISTS, "%s is there already", path);
        return weft_err_errno(why, error, "cannot write %s", path);
    }
    weft_err err = write_file(c, path, file, why);
    if (err) {
        (void)unlink(path); /* half a conversation could not be read, and would be in the way */
        free(name);
        return err;
    }
    free(c->saved_as);
    c->saved_as = name;
    return WEFT_OK;
}
