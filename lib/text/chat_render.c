/* Runs a compiled chat template.
 *
 * Values follow Jinja as transformers sets it up: an undefined name or member prints as nothing and
 * is false, but adding to it or taking a member of it is an error. Strings that expressions make
 * live on a stack of allocations that is cut back after each statement; together with the output
 * they stay below the output's ceiling, and the number of statements run is bounded too. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/check.h"
#include "base/parse.h"
#include "text_internal.h"

#define STEPS_PER_MESSAGE 10000u /* the longest template seen has under 300 statements */

enum kind { UNDEFINED, NONE, BOOL, INT, STRING, MESSAGES, MESSAGE, LOOP };

struct value {
    enum kind kind;
    int64_t number; /* BOOL, INT; MESSAGE: its index; LOOP: the index of the round */
    struct weft_str text;
};

struct chunk {
    struct chunk *below;
    size_t bytes;
    char text[];
};

struct binding {
    struct weft_str name;
    struct value value;
};

struct render {
    const weft_chat *chat;
    const struct weft_chat_message *messages;
    size_t n_messages;
    bool add_generation_prompt;
    struct weft_buf *out;
    struct chunk *chunks; /* owned; newest first */
    size_t chunk_bytes;
    struct binding *bindings; /* owned; later ones shadow earlier ones */
    size_t n_bindings, bindings_cap;
    uint64_t steps_left;
    struct weft_errmsg *why;
};

/* --- strings made on the way -------------------------------------------------------------------
 */

static weft_err too_big(struct render *render) {
    return weft_err_set(render->why, WEFT_E_TOOBIG, "the rendered chat prompt is over %zu bytes",
                        render->out->max_bytes);
}

static weft_err new_string(struct render *render, size_t len, char **text_out) {
    *text_out = NULL;
    if (len > render->out->max_bytes || render->chunk_bytes > render->out->max_bytes - len)
        return too_big(render);
    struct chunk *chunk = malloc(sizeof *chunk + len);
    if (!chunk) return WEFT_E_NOMEM;
    *chunk = (struct chunk){render->chunks, len};
    render->chunks = chunk;
    render->chunk_bytes += len;
    *text_out = chunk->text;
    return WEFT_OK;
}

static void cut_back(struct render *render, const struct chunk *mark) {
    while (render->chunks != mark) {
        struct chunk *gone = render->chunks;
        render->chunks = gone->below;
        render->chunk_bytes -= gone->bytes;
        free(gone);
    }
}

/* --- values ------------------------------------------------------------------------------------
 */

static bool is_true(const struct render *render, struct value value) {
    switch (value.kind) {
    case UNDEFINED:
    case NONE:
        return false;
    case BOOL:
    case INT:
        return value.number != 0;
    case STRING:
        return value.text.len > 0;
    case MESSAGES:
        return render->n_messages > 0;
    default:
        return true;
    }
}

static bool is_number(struct value value) {
    return value.kind == BOOL || value.kind == INT; /* True == 1, as in Python */
}

static bool are_equal(struct value a, struct value b) {
    if (is_number(a) && is_number(b)) return a.number == b.number;
    if (a.kind != b.kind) return false;
    if (a.kind == STRING) return wefti_str_is(a.text, b.text.data, b.text.len);
    return a.kind != MESSAGE || a.number == b.number;
}

static struct value of_bool(bool truth) {
    return (struct value){.kind = BOOL, .number = truth};
}

static struct value of_string(struct weft_str text) {
    return (struct value){.kind = STRING, .text = text};
}

static const char *kind_name(enum kind kind) {
    static const char *const names[] = {
        "something undefined", "none",      "a truth value", "a number", "a string",
        "the messages",        "a message", "the loop"};
    return names[kind];
}

static weft_err fault(struct render *render, const struct wefti_expr *expr, const char *what,
                      enum kind kind) {
    return weft_err_set(render->why, WEFT_E_INVAL, "chat template, line %u: %s %s", expr->line,
                        what, kind_name(kind));
}

/* What printing writes. Numbers go to `digits`. */
static weft_err to_text(struct render *render, const struct wefti_expr *expr, struct value value,
                        char digits[24], struct weft_str *out) {
    *out = (struct weft_str){"", 0};
    switch (value.kind) {
    case UNDEFINED:
        return WEFT_OK;
    case NONE:
        *out = (struct weft_str){"None", 4};
        return WEFT_OK;
    case BOOL:
        *out = value.number ? (struct weft_str){"True", 4} : (struct weft_str){"False", 5};
        return WEFT_OK;
    case INT:
        (void)snprintf(digits, 24, "%" PRId64, value.number);
        *out = (struct weft_str){digits, strlen(digits)};
        return WEFT_OK;
    case STRING:
        *out = value.text;
        return WEFT_OK;
    default:
        return fault(render, expr, "cannot write", value.kind);
    }
}

/* --- expressions -------------------------------------------------------------------------------
 */

static weft_err eval(struct render *render, uint32_t idx, struct value *out);

static weft_err eval_name(struct render *render, struct weft_str name, struct value *out) {
    const weft_chat *chat = render->chat;
    *out = (struct value){.kind = UNDEFINED};
    for (size_t i = render->n_bindings; i-- > 0;) {
        const struct binding *binding = &render->bindings[i];
        if (!wefti_str_is(binding->name, name.data, name.len)) continue;
        *out = binding->value;
        return WEFT_OK;
    }
    if (WEFTI_IS(name, "messages"))
        *out = (struct value){.kind = MESSAGES};
    else if (WEFTI_IS(name, "add_generation_prompt"))
        *out = of_bool(render->add_generation_prompt);
    else if (WEFTI_IS(name, "bos_token") && chat->has_bos)
        *out = of_string(chat->bos);
    else if (WEFTI_IS(name, "eos_token") && chat->has_eos)
        *out = of_string(chat->eos);
    else if (WEFTI_IS(name, "tools") || WEFTI_IS(name, "documents"))
        *out = (struct value){.kind = NONE}; /* transformers always passes them */
    return WEFT_OK;
}

static struct value message_member(const struct weft_chat_message *message, struct weft_str name) {
    if (WEFTI_IS(name, "role"))
        return of_string((struct weft_str){message->role, message->role_len});
    if (WEFTI_IS(name, "content"))
        return of_string((struct weft_str){message->content, message->content_len});
    return (struct value){.kind = UNDEFINED};
}

static struct value loop_member(const struct render *render, int64_t round, struct weft_str name) {
    int64_t n = (int64_t)render->n_messages;
    if (WEFTI_IS(name, "first")) return of_bool(round == 0);
    if (WEFTI_IS(name, "last")) return of_bool(round == n - 1);
    struct value number = {.kind = INT};
    if (WEFTI_IS(name, "index"))
        number.number = round + 1;
    else if (WEFTI_IS(name, "index0"))
        number.number = round;
    else if (WEFTI_IS(name, "length"))
        number.number = n;
    else
        number.kind = UNDEFINED;
    return number;
}

static weft_err member_of(struct render *render, const struct wefti_expr *expr, struct value of,
                          struct weft_str name, struct value *out) {
    *out = (struct value){.kind = UNDEFINED};
    if (of.kind == UNDEFINED) return fault(render, expr, "cannot take a member of", of.kind);
    if (of.kind == MESSAGE) *out = message_member(&render->messages[of.number], name);
    if (of.kind == LOOP) *out = loop_member(render, of.number, name);
    return WEFT_OK;
}

static weft_err eval_index(struct render *render, const struct wefti_expr *expr,
                           struct value *out) {
    struct value of, index;
    weft_err err = eval(render, expr->a, &of);
    if (!err) err = eval(render, expr->b, &index);
    if (err) return err;
    if (index.kind == STRING) return member_of(render, expr, of, index.text, out);
    if (of.kind != MESSAGES || !is_number(index))
        return fault(render, expr, "cannot take an element of", of.kind);
    int64_t n = (int64_t)render->n_messages;
    int64_t at = index.number < 0 ? index.number + n : index.number;
    *out = (struct value){.kind = UNDEFINED};
    if (at >= 0 && at < n) *out = (struct value){.kind = MESSAGE, .number = at};
    return WEFT_OK;
}

static weft_err join(struct render *render, struct weft_str a, struct weft_str b,
                     struct value *out) {
    char *text;
    weft_err err = new_string(render, a.len + b.len, &text);
    if (err) return err;
    WEFT_ASSERT(text);
    if (a.len > 0) memcpy(text, a.data, a.len);
    if (b.len > 0) memcpy(text + a.len, b.data, b.len);
    *out = of_string((struct weft_str){text, a.len + b.len});
    return WEFT_OK;
}

static weft_err eval_add(struct render *render, const struct wefti_expr *expr, struct value a,
                         struct value b, struct value *out) {
    if (a.kind == STRING && b.kind == STRING) return join(render, a.text, b.text, out);
    if (!is_number(a) || !is_number(b))
        return fault(render, expr, "cannot add",
                     a.kind == STRING || is_number(a) ? b.kind : a.kind);
    *out = (struct value){.kind = INT};
    if (__builtin_add_overflow(a.number, b.number, &out->number))
        return fault(render, expr, "an overflow of", INT);
    return WEFT_OK;
}

static weft_err eval_concat(struct render *render, const struct wefti_expr *expr, struct value a,
                            struct value b, struct value *out) {
    char a_digits[24], b_digits[24];
    struct weft_str a_text, b_text;
    weft_err err = to_text(render, expr, a, a_digits, &a_text);
    if (!err) err = to_text(render, expr, b, b_digits, &b_text);
    return err ? err : join(render, a_text, b_text, out);
}

static weft_err eval_mod(struct render *render, const struct wefti_expr *expr, struct value a,
                         struct value b, struct value *out) {
    if (!is_number(a)) return fault(render, expr, "cannot take a remainder of", a.kind);
    if (!is_number(b) || b.number == 0 || b.number == -1)
        return fault(render, expr, "cannot divide by", b.kind);
    int64_t rest = a.number % b.number;
    if (rest != 0 && (rest < 0) != (b.number < 0)) rest += b.number; /* the divisor's sign */
    *out = (struct value){.kind = INT, .number = rest};
    return WEFT_OK;
}

static weft_err eval_binary(struct render *render, const struct wefti_expr *expr,
                            struct value *out) {
    struct value a, b;
    weft_err err = eval(render, expr->a, &a);
    if (!err) err = eval(render, expr->b, &b);
    if (err) return err;
    switch (expr->kind) {
    case WEFTI_EXPR_ADD:
        return eval_add(render, expr, a, b, out);
    case WEFTI_EXPR_CONCAT:
        return eval_concat(render, expr, a, b, out);
    case WEFTI_EXPR_MOD:
        return eval_mod(render, expr, a, b, out);
    case WEFTI_EXPR_EQ:
        *out = of_bool(are_equal(a, b));
        return WEFT_OK;
    default:
        WEFT_ASSERT(expr->kind == WEFTI_EXPR_NE);
        *out = of_bool(!are_equal(a, b));
        return WEFT_OK;
    }
}

static struct weft_str trimmed(struct weft_str text) {
    size_t len;
    while (text.len > 0) {
        const char *last = text.data + text.len - 1;
        while (last > text.data && ((unsigned char)*last & 0xC0) == 0x80)
            last--;
        if (!wefti_is_space(wefti_utf8_get(last, &len))) break;
        text.len = (size_t)(last - text.data);
    }
    while (text.len > 0 && wefti_is_space(wefti_utf8_get(text.data, &len))) {
        text.data += len;
        text.len -= len;
    }
    return text;
}

static weft_err eval_length(struct render *render, const struct wefti_expr *expr, struct value of,
                            struct value *out) {
    *out = (struct value){.kind = INT};
    if (of.kind == MESSAGES) {
        out->number = (int64_t)render->n_messages;
    } else if (of.kind == STRING) {
        for (size_t i = 0; i < of.text.len; i++)
            out->number += ((unsigned char)of.text.data[i] & 0xC0) != 0x80;
    } else if (of.kind != UNDEFINED) {
        return fault(render, expr, "cannot take the length of", of.kind);
    }
    return WEFT_OK;
}

static weft_err raise(struct render *render, const struct wefti_expr *expr, struct value message) {
    char digits[24];
    struct weft_str text;
    weft_err err = to_text(render, expr, message, digits, &text);
    if (err) return err;
    return weft_err_set(render->why, WEFT_E_INVAL, "%.*s", (int)(text.len < 400 ? text.len : 400),
                        text.data);
}

/* Operators of one operand. */
static weft_err eval_unary(struct render *render, const struct wefti_expr *expr,
                           struct value *out) {
    struct value a;
    weft_err err = eval(render, expr->a, &a);
    if (err) return err;
    switch (expr->kind) {
    case WEFTI_EXPR_MEMBER:
        return member_of(render, expr, a, expr->text, out);
    case WEFTI_EXPR_NOT:
        *out = of_bool(!is_true(render, a));
        return WEFT_OK;
    case WEFTI_EXPR_IS_DEFINED:
        *out = of_bool(a.kind != UNDEFINED);
        return WEFT_OK;
    case WEFTI_EXPR_IS_NONE:
        *out = of_bool(a.kind == NONE);
        return WEFT_OK;
    case WEFTI_EXPR_IS_STRING:
        *out = of_bool(a.kind == STRING);
        return WEFT_OK;
    case WEFTI_EXPR_TRIM:
        if (a.kind != STRING && a.kind != UNDEFINED)
            return fault(render, expr, "cannot trim", a.kind);
        *out = of_string(a.kind == STRING ? trimmed(a.text) : (struct weft_str){"", 0});
        return WEFT_OK;
    case WEFTI_EXPR_LENGTH:
        return eval_length(render, expr, a, out);
    default:
        WEFT_ASSERT(expr->kind == WEFTI_EXPR_RAISE);
        return raise(render, expr, a);
    }
}

/* and, or, if-else: what is not needed is not evaluated. */
static weft_err eval_choice(struct render *render, const struct wefti_expr *expr,
                            struct value *out) {
    weft_err err = eval(render, expr->a, out);
    if (err) return err;
    bool truth = is_true(render, *out);
    if (expr->kind == WEFTI_EXPR_AND) return truth ? eval(render, expr->b, out) : WEFT_OK;
    if (expr->kind == WEFTI_EXPR_OR) return truth ? WEFT_OK : eval(render, expr->b, out);
    if (truth) return eval(render, expr->b, out);
    if (expr->c != WEFTI_NO_ID) return eval(render, expr->c, out);
    *out = (struct value){.kind = UNDEFINED};
    return WEFT_OK;
}

static weft_err eval(struct render *render, uint32_t idx, struct value *out) {
    WEFT_ASSERT(idx < render->chat->n_exprs);
    const struct wefti_expr *expr = &render->chat->exprs[idx];
    switch (expr->kind) {
    case WEFTI_EXPR_STRING:
        *out = of_string(expr->text);
        return WEFT_OK;
    case WEFTI_EXPR_INT:
        *out = (struct value){.kind = INT, .number = expr->number};
        return WEFT_OK;
    case WEFTI_EXPR_BOOL:
        *out = of_bool(expr->number != 0);
        return WEFT_OK;
    case WEFTI_EXPR_NONE:
        *out = (struct value){.kind = NONE};
        return WEFT_OK;
    case WEFTI_EXPR_NAME:
        return eval_name(render, expr->text, out);
    case WEFTI_EXPR_INDEX:
        return eval_index(render, expr, out);
    case WEFTI_EXPR_ADD:
    case WEFTI_EXPR_CONCAT:
    case WEFTI_EXPR_MOD:
    case WEFTI_EXPR_EQ:
    case WEFTI_EXPR_NE:
        return eval_binary(render, expr, out);
    case WEFTI_EXPR_AND:
    case WEFTI_EXPR_OR:
    case WEFTI_EXPR_COND:
        return eval_choice(render, expr, out);
    default:
        return eval_unary(render, expr, out);
    }
}

/* --- statements --------------------------------------------------------------------------------
 */

static weft_err run_body(struct render *render, uint32_t first);

static weft_err bind(struct render *render, struct weft_str name, struct value value) {
    if (render->n_bindings == render->bindings_cap) {
        /* Each SET and FOR that is being run binds at most two names: bounded by the template. */
        size_t cap = render->bindings_cap ? 2 * render->bindings_cap : 16;
        struct binding *grown = realloc(render->bindings, cap * sizeof *grown);
        if (!grown) return WEFT_E_NOMEM;
        render->bindings = grown;
        render->bindings_cap = cap;
    }
    render->bindings[render->n_bindings++] = (struct binding){name, value};
    return WEFT_OK;
}

/* Loops inside loops over many messages would run for hours. */
static weft_err count_step(struct render *render) {
    if (render->steps_left == 0)
        return weft_err_set(render->why, WEFT_E_TOOBIG,
                            "rendering the chat template takes over %u steps per message",
                            STEPS_PER_MESSAGE);
    render->steps_left--;
    return WEFT_OK;
}

static weft_err run_print(struct render *render, const struct wefti_node *node) {
    const struct chunk *mark = render->chunks;
    struct value value;
    char digits[24];
    struct weft_str text;
    weft_err err = eval(render, node->expr, &value);
    if (!err) err = to_text(render, &render->chat->exprs[node->expr], value, digits, &text);
    if (!err) weft_buf_add(render->out, text.data, text.len);
    cut_back(render, mark);
    return err;
}

static weft_err run_if(struct render *render, const struct wefti_node *node) {
    const struct chunk *mark = render->chunks;
    struct value value;
    weft_err err = eval(render, node->expr, &value);
    if (err) return err;
    bool truth = is_true(render, value);
    cut_back(render, mark);
    return run_body(render, truth ? node->body : node->otherwise);
}

static weft_err run_for(struct render *render, const struct wefti_node *node) {
    static const struct weft_str loop_name = {"loop", 4};
    weft_err err = WEFT_OK;
    for (size_t i = 0; i < render->n_messages && !err; i++) {
        const struct chunk *mark = render->chunks;
        size_t outer = render->n_bindings;
        int64_t round = (int64_t)i;
        err = count_step(render);
        if (!err) err = bind(render, loop_name, (struct value){.kind = LOOP, .number = round});
        if (!err) err = bind(render, node->text, (struct value){.kind = MESSAGE, .number = round});
        if (!err) err = run_body(render, node->body);
        render->n_bindings = outer; /* what the round has set ends with it */
        cut_back(render, mark);
    }
    return err;
}

static weft_err run_node(struct render *render, const struct wefti_node *node) {
    struct value value;
    weft_err err;
    switch (node->kind) {
    case WEFTI_NODE_TEXT:
        weft_buf_add(render->out, node->text.data, node->text.len);
        return WEFT_OK;
    case WEFTI_NODE_PRINT:
        return run_print(render, node);
    case WEFTI_NODE_IF:
        return run_if(render, node);
    case WEFTI_NODE_FOR:
        return run_for(render, node);
    case WEFTI_NODE_SET:
        err = eval(render, node->expr, &value);
        return err ? err : bind(render, node->text, value);
    }
    return WEFT_E_STATE;
}

static weft_err run_body(struct render *render, uint32_t first) {
    weft_err err = WEFT_OK;
    for (uint32_t at = first; at != WEFTI_NO_ID && !err; at = render->chat->nodes[at].next) {
        err = count_step(render);
        if (!err) err = run_node(render, &render->chat->nodes[at]);
        if (!err && render->out->failed) err = too_big(render);
    }
    return err;
}

/* --- the public face ---------------------------------------------------------------------------
 */

weft_err weft_chat_render(const weft_chat *chat, const struct weft_chat_message *messages, size_t n,
                          bool add_generation_prompt, struct weft_buf *out,
                          struct weft_errmsg *why) {
    struct render render = {.chat = chat,
                            .messages = messages,
                            .n_messages = n,
                            .add_generation_prompt = add_generation_prompt,
                            .out = out,
                            .steps_left = (uint64_t)STEPS_PER_MESSAGE * (n + 1),
                            .why = why};
    size_t before = out->len;
    weft_err err = run_body(&render, chat->first);
    if (err) out->len = before;
    if (err == WEFT_E_NOMEM) (void)weft_err_set(why, err, "no memory to render a chat prompt");
    cut_back(&render, NULL);
    free(render.bindings);
    return err;
}

/* Copies the source with line ends as "\n"; Jinja drops one at the very end. */
static weft_err copy_source(weft_chat *chat, const char *source, size_t len) {
    chat->source = malloc(len + 1);
    if (!chat->source) return WEFT_E_NOMEM;
    size_t n = 0;
    for (size_t i = 0; i < len; i++) {
        if (source[i] != '\r')
            chat->source[n++] = source[i];
        else if (i + 1 == len || source[i + 1] != '\n')
            chat->source[n++] = '\n';
    }
    if (n > 0 && chat->source[n - 1] == '\n') n--;
    chat->source_len = n;
    return WEFT_OK;
}

static bool token_text(const weft_tokenizer *tok, uint32_t id, struct weft_str *out) {
    if (id == WEFTI_NO_ID) return false;
    *out = wefti_vocab_bytes(&tok->vocab, id);
    return true;
}

weft_err weft_chat_new(const char *source, size_t len, const weft_tokenizer *tok,
                       weft_chat **chat_out, struct weft_errmsg *why) {
    *chat_out = NULL;
    if (len > WEFTI_CHAT_BYTES_MAX)
        return weft_err_set(why, WEFT_E_TOOBIG, "a chat template of %zu bytes; the limit is %u",
                            len, WEFTI_CHAT_BYTES_MAX);
    if (!weft_utf8_valid(source, len))
        return weft_err_set(why, WEFT_E_PROTO, "the chat template is not valid UTF-8");
    weft_err err = WEFT_E_NOMEM;
    weft_chat *chat = calloc(1, sizeof *chat);
    if (!chat) goto cleanup;
    chat->first = WEFTI_NO_ID;
    chat->has_bos = token_text(tok, tok->bos_id, &chat->bos);
    chat->has_eos = token_text(tok, tok->eos_token_id, &chat->eos);
    err = copy_source(chat, source, len);
    if (!err) err = wefti_chat_parse(chat, why);
    if (err) goto cleanup;
    *chat_out = chat;
    chat = NULL;
cleanup:
    if (err == WEFT_E_NOMEM) (void)weft_err_set(why, err, "no memory for a chat template");
    weft_chat_free(chat);
    return err;
}

void weft_chat_free(weft_chat *chat) {
    if (!chat) return;
    free(chat->source);
    free(chat->exprs);
    free(chat->nodes);
    free(chat);
}
