/* Random walks through constraints: what a grammar lets a model write is read by the parser as calls of the tools, and
 * their arguments satisfy the tools' schemas. Tokens are bytes and the words that end things, so that walks come to an
 * end. Tools are few, or many at random; the output is pushed in random pieces. */
#include <stdio.h>

#include "base/rand.h"
#include "inside/message/format.h"
#include "unit/message_wish.h"

#ifdef WEFT_SANITIZED
#define N_WALKS 15
#else
#define N_WALKS 120
#endif
#define N_TOKENS_MAX 400u
#define N_WORDS (sizeof words / sizeof *words)
#define N_CALLS_MAX 64u
#define N_TOKENS_MOST (256 + N_WORDS + WEFTI_MSG_MARKS_MAX)

static const char *const words[] = {"\"",
                                    "\"}",
                                    "}",
                                    "]",
                                    "{}",
                                    "[]",
                                    "null",
                                    "true",
                                    "false",
                                    "None",
                                    "123",
                                    "-1",
                                    "1e2",
                                    "0.5",
                                    "{\"",
                                    "\": ",
                                    "x",
                                    "é",
                                    "\\\"",
                                    "\\u00e9",
                                    "\n",
                                    "2020",
                                    "-10-1",
                                    "T10:00",
                                    ":00Z",
                                    "a@b.",
                                    "\\ud8",
                                    "\\/",
                                    "</parameter>",
                                    "\n</parameter>\n",
                                    "</arg_value>",
                                    "</｜DSML｜parameter>",
                                    "</function>",
                                    "</invoke>",
                                    "</tool_call>",
                                    "<tool_call>",
                                    "<|end|>",
                                    "<|call|>",
                                    "<|start|>assistant",
                                    "</think>",
                                    "[TOOL_CALLS]",
                                    "<|tool_call|>",
                                    "<|tool_call_start|>",
                                    "<|START_ACTION|>",
                                    "<TOOLCALL>",
                                    "<tool_calls>",
                                    "<seed:tool_call>",
                                    "<minimax:tool_call>",
                                    "<｜tool▁calls▁begin｜>",
                                    "<|tool_calls_section_begin|>",
                                    "<｜DSML｜function_calls>",
                                    "<|channel|>commentary to=",
                                    "<|channel|>final<|message|>"};

/* Properties and whether they are required are drawn from these. */
static const char *const schemas[] = {
    "{\"type\":\"string\"}",
    "{\"type\":\"integer\"}",
    "{\"type\":\"number\",\"minimum\":-2,\"maximum\":7}",
    "{\"type\":\"boolean\"}",
    "{\"type\":\"null\"}",
    "{\"type\":\"string\",\"enum\":[\"a\",\"b c\",\"true\",\"12\"]}",
    "{\"enum\":[\"a\",\"null\",null,3,\"3\"]}",
    "{\"const\":\"fixed\"}",
    "{\"type\":[\"string\",\"null\"]}",
    "{\"type\":[\"string\",\"integer\",\"boolean\"]}",
    "{\"anyOf\":[{\"type\":\"string\",\"minLength\":2},{\"type\":\"number\",\"minimum\":10}]}",
    "{\"anyOf\":[{\"$ref\":\"#/$defs/N\"},{\"type\":\"null\"}],\"default\":null}",
    "{\"$ref\":\"#/$defs/E\"}",
    "{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/E\"},\"maxItems\":2}",
    "{\"type\":\"object\",\"properties\":{\"k\":{\"type\":\"boolean\"}},\"required\":[\"k\"],"
    "\"additionalProperties\":false}",
    "{\"type\":\"string\",\"pattern\":\"^[A-Z]{1,3}-\\\\d+$\"}",
    "{\"type\":\"string\",\"minLength\":1,\"maxLength\":4}",
    "{\"type\":\"string\",\"format\":\"date\"}",
    "{\"type\":\"string\",\"format\":\"date-time\"}",
    "{\"type\":\"string\",\"format\":\"uuid\"}",
    "{\"type\":\"string\",\"format\":\"email\"}",
    "{\"type\":\"string\",\"format\":\"ipv4\"}",
    "{\"type\":\"string\",\"format\":\"duration\"}",
    "{\"type\":\"string\",\"format\":\"hostname\"}",
    "{\"type\":\"string\",\"format\":\"uri\"}",
    "{\"type\":\"array\",\"items\":{\"type\":\"string\",\"maxLength\":2},\"minItems\":1,"
    "\"maxItems\":2}",
    "{\"oneOf\":[{\"const\":\"x/y\"},{\"const\":\"z\"},{\"type\":\"integer\",\"maximum\":0}]}",
    "{\"allOf\":[{\"type\":\"string\",\"minLength\":3},{\"pattern\":\"b\"}]}",
    "{\"anyOf\":[{\"type\":\"array\",\"items\":{\"type\":\"integer\"}},{\"type\":\"string\"}]}",
    "{}",
    "true",
    "{\"anyOf\":[{\"type\":\"string\",\"maxLength\":1},{\"maximum\":5}]}",
    "{\"enum\":[\"1\",\"[]\",\"x\"]}",
    "{\"allOf\":[{\"type\":[\"string\",\"number\"]},{\"enum\":[\"1\",1,2]}]}",
    "{\"not\":{\"type\":\"string\"}}",
    "{\"type\":[\"object\",\"string\"],\"minProperties\":1,\"minLength\":1}",
    "{\"type\":\"integer\",\"multipleOf\":5}",
    "{\"properties\":{\"a\":{\"type\":\"null\"}},\"required\":[\"a\"]}",
    "{\"items\":{\"type\":\"boolean\"},\"minLength\":2}",
};
#define N_SCHEMAS (sizeof schemas / sizeof *schemas)

static const char *const roots[] = {
    "",
    ",\"additionalProperties\":false",
    ",\"additionalProperties\":false",
    ",\"minProperties\":1,\"additionalProperties\":false",
    ",\"additionalProperties\":{\"type\":\"integer\"}",
    ",\"dependentRequired\":{\"p0\":[\"p1\"]}",
    ",\"anyOf\":[{\"required\":[\"p0\"]},{\"required\":[\"p1\"]}]",
    ",\"maxProperties\":2,\"additionalProperties\":false",
    ",\"additionalProperties\":{\"type\":[\"string\",\"boolean\"],\"minLength\":1}",
    ",\"allOf\":[{\"properties\":{\"zz\":{\"enum\":[\"1\",2]}},\"required\":[\"zz\"]}]",
    ",\"oneOf\":[{\"properties\":{\"kind\":{\"const\":\"k\"}},\"required\":[\"kind\"]},"
    "{\"properties\":{\"kind\":{\"const\":1}},\"required\":[\"kind\"]}]",
    ",\"if\":{\"required\":[\"p0\"]},\"then\":{\"required\":[\"p1\"]}",
};

static uint64_t rand_state;
static uint32_t n_calls; /* of one format */

static uint32_t below(uint32_t n) {
    return weft_rand_below(&rand_state, n);
}

/* -------------------------------------------------------------------------------------- tools --- */

static void add_tool(struct weft_buf *out, uint32_t i) {
    uint32_t n = below(5), n_required = 0;
    const char *root = roots[below(sizeof roots / sizeof *roots)];
    if (n < 2) root = ",\"additionalProperties\":false";
    weft_buf_printf(
        out,
        "%s{\"type\":\"function\",\"function\":{\"name\":\"tool_%u\",\"parameters\":{"
        "\"type\":\"object\",\"$defs\":{\"E\":{\"type\":\"string\",\"enum\":[\"u\",\"v w\"]},"
        "\"N\":{\"type\":\"string\",\"maxLength\":9}},\"properties\":{",
        i ? "," : "", i);
    for (uint32_t k = 0; k < n; k++)
        weft_buf_printf(out, "%s\"p%u\":%s", k ? "," : "", k, schemas[below(N_SCHEMAS)]);
    weft_buf_add_str(out, "},\"required\":[");
    for (uint32_t k = 0; k < n && k < 2; k++)
        if (below(2) == 0) weft_buf_printf(out, "%s\"p%u\"", n_required++ ? "," : "", k);
    if (!strstr(root, "false") && below(3) == 0)
        weft_buf_printf(out, "%s\"zz\"", n_required ? "," : "");
    weft_buf_printf(out, "]%s}}}", root); /* what it declares comes after the properties */
}

static char *random_tools(void) {
    struct weft_buf out;
    weft_buf_init(&out, 1 << 20);
    weft_buf_add_str(&out, "[");
    uint32_t n = 1 + below(3);
    for (uint32_t i = 0; i < n; i++)
        add_tool(&out, i);
    weft_buf_add_str(&out, "]");
    char *text = strdup(weft_buf_cstr(&out));
    WEFT_ASSERT(text);
    weft_buf_fini(&out);
    return text;
}

/* --------------------------------------------------------------------------------------- walks --- */

static weft_gram_vocab *vocab;
static struct weft_str tokens[N_TOKENS_MOST];
static bool is_special[N_TOKENS_MOST];
static char bytes[256];
static uint32_t n_tokens;

/* With the format's marks as special tokens, or without any. */
static void make_vocab(const struct weft_msg_format *format, bool has_special) {
    for (n_tokens = 0; n_tokens < 256; n_tokens++) {
        bytes[n_tokens] = (char)n_tokens;
        tokens[n_tokens] = (struct weft_str){&bytes[n_tokens], 1};
    }
    for (uint32_t i = 0; i < N_WORDS; i++)
        tokens[n_tokens++] = (struct weft_str){words[i], strlen(words[i])};
    for (uint32_t i = 0; has_special && i < WEFTI_MSG_MARKS_MAX && format->marks[i]; i++) {
        is_special[n_tokens] = true;
        tokens[n_tokens++] = (struct weft_str){format->marks[i], strlen(format->marks[i])};
    }
    weft_err err = weft_gram_vocab_with_special(tokens, is_special, n_tokens, &vocab);
    WEFT_ASSERT(!err);
}

static void drop_vocab(void) {
    weft_gram_vocab_free(vocab);
    memset(is_special, 0, sizeof is_special);
}

static bool has_all_special(void *context, struct weft_str text) {
    (void)context;
    (void)text;
    return true;
}

static void take(weft_gram_state *state, struct weft_str text, bool as_special,
                 struct weft_buf *out) {
    weft_err err = as_special ? weft_gram_take_special(state, text)
                              : weft_gram_take(state, text.data, text.len);
    WEFT_ASSERT(!err);
    weft_buf_add(out, text.data, text.len);
}

/* Words are likelier than bytes. `begin`: what it begins with. False: it came to no end. */
static bool walk(weft_gram *gram, const char *begin, struct weft_buf *out) {
    uint64_t mask[(N_TOKENS_MOST + 63) / 64];
    weft_gram_state *state;
    bool is_over = false;
    weft_err err = weft_gram_state_new(gram, &state);
    WEFT_ASSERT(!err);
    take(state, (struct weft_str){begin, strlen(begin)}, false, out);
    for (uint32_t n = 0; n < N_TOKENS_MAX && !is_over; n++) {
        uint32_t fitting[N_TOKENS_MOST], n_fitting = 0, n_words = 0;
        err = weft_gram_mask(state, vocab, mask);
        WEFT_ASSERT(!err);
        for (uint32_t i = n_tokens; i-- > 0;) {
            if (!(mask[i / 64] >> (i % 64) & 1)) continue;
            fitting[n_fitting++] = i;
            if (i >= 256) n_words++;
        }
        bool may_end = weft_gram_may_end(state);
        WEFT_ASSERT(n_fitting > 0 || may_end);
        is_over = may_end && (n_fitting == 0 || below(n > 100 ? 2 : 6) == 0);
        if (is_over) break;
        uint32_t one = n_words && below(2) ? fitting[below(n_words)] : fitting[below(n_fitting)];
        take(state, tokens[one], is_special[one], out);
    }
    weft_gram_state_free(state);
    return is_over;
}

/* ------------------------------------------------------------------------------------- reading --- */

struct message {
    struct weft_buf content, thoughts, names[N_CALLS_MAX], arguments[N_CALLS_MAX];
    uint32_t n_calls;
};

static void hear(void *context, const struct weft_msg_event *event) {
    struct message *m = context;
    struct weft_buf *to = &m->content;
    if (event->kind == WEFT_MSG_THOUGHT) to = &m->thoughts;
    if (event->kind == WEFT_MSG_CALL) {
        WEFT_ASSERT(event->call == m->n_calls && m->n_calls < N_CALLS_MAX);
        to = &m->names[m->n_calls++];
    }
    if (event->kind == WEFT_MSG_ARGUMENTS) to = &m->arguments[event->call];
    weft_buf_add(to, event->text.data, event->text.len);
}

static void read_message(const struct weft_msg_setup *setup, const struct weft_buf *output,
                         struct message *m) {
    weft_msg_parser *parser;
    weft_err err = weft_msg_parser_new(setup, &parser);
    WEFT_ASSERT(!err);
    for (size_t at = 0; at < output->len;) {
        size_t n = 1 + below(20);
        if (n > output->len - at) n = output->len - at;
        err = weft_msg_push(parser, (struct weft_str){output->data + at, n}, hear, m);
        WEFT_ASSERT(!err);
        at += n;
    }
    err = weft_msg_finish(parser, hear, m);
    WEFT_ASSERT(!err);
    weft_msg_parser_free(parser);
}

static bool satisfies(const json_t *tools, const char *name, struct weft_str arguments) {
    json_t *schema = NULL, *one;
    size_t i;
    json_array_foreach(tools, i, one) {
        json_t *function = json_object_get(one, "function");
        if (!strcmp(json_string_value(json_object_get(function, "name")), name))
            schema = json_object_get(function, "parameters");
    }
    if (!schema) return false;
    weft_gram *gram;
    weft_gram_state *state;
    char *text = json_dumps(schema, 0);
    weft_err err = weft_gram_schema((struct weft_str){text, strlen(text)}, &gram, NULL);
    WEFT_ASSERT(!err);
    err = weft_gram_state_new(gram, &state);
    WEFT_ASSERT(!err);
    bool fits = !weft_gram_take(state, arguments.data, arguments.len) && weft_gram_may_end(state);
    weft_gram_state_free(state);
    weft_gram_free(gram);
    free(text);
    return fits;
}

static void show(const char *what, struct weft_str text) {
    printf("%s: %.*s\n", what, (int)text.len, text.data);
}

static int check(const char *tools_json, const struct weft_msg_wish *wish,
                 const struct weft_buf *output) {
    struct message m = {.n_calls = 0};
    struct weft_msg_setup setup = {
        .format = wish->format, .tools = wish->tools, .is_constrained = true};
    json_t *tools = json_loads(tools_json, 0, NULL);
    int bad = 0;
    weft_buf_init(&m.content, 1 << 20);
    weft_buf_init(&m.thoughts, 1 << 20);
    for (uint32_t i = 0; i < N_CALLS_MAX; i++) {
        weft_buf_init(&m.names[i], 1 << 20);
        weft_buf_init(&m.arguments[i], 1 << 20);
    }
    read_message(&setup, output, &m);
    bool is_required = wish->choice == WEFT_MSG_REQUIRED;
    if (is_required && (m.n_calls == 0 || m.content.len > 0 || (wish->is_single && m.n_calls > 1)))
        bad = 1;
    if (wish->is_single && m.n_calls > 1) bad = 1;
    n_calls += m.n_calls;
    for (uint32_t i = 0; i < m.n_calls; i++) {
        struct weft_str arguments = {m.arguments[i].data, m.arguments[i].len};
        if (!satisfies(tools, weft_buf_cstr(&m.names[i]), arguments)) {
            bad = 1;
            show(weft_buf_cstr(&m.names[i]), arguments);
        }
    }
    if (bad) {
        printf("%s, %s: %u calls\n", weft_msg_format_name(wish->format),
               is_required ? "required" : "auto", m.n_calls);
        show("content", (struct weft_str){m.content.data, m.content.len});
        show("output", (struct weft_str){output->data, output->len});
        printf("tools: %s\n", tools_json);
    }
    weft_buf_fini(&m.content);
    weft_buf_fini(&m.thoughts);
    for (uint32_t i = 0; i < N_CALLS_MAX; i++) {
        weft_buf_fini(&m.names[i]);
        weft_buf_fini(&m.arguments[i]);
    }
    json_decref(tools);
    return bad;
}

/* Walks of one format and one list of tools; how many ended, or -1. */
static int try_one(const char *format) {
    char *tools_json = random_tools();
    weft_msg_tools *tools = test_tools(tools_json);
    struct weft_msg_wish wish =
        test_wish(format, tools, below(3) ? WEFT_MSG_REQUIRED : WEFT_MSG_AUTO);
    struct weft_errmsg why = {""};
    struct weft_buf tags, output;
    weft_gram *gram = NULL;
    bool thinks, bad = false;
    int n_ended = 0;
    bool has_special = below(2) == 0;
    wish.is_single = below(2) == 0;
    if (has_special) wish.has_special = has_all_special;
    make_vocab(wish.format, has_special);
    weft_buf_init(&tags, 4 << 20);
    weft_buf_init(&output, 1 << 20);
    weft_err err = weft_msg_constrain(&wish, &tags, &thinks, &why);
    if (!err && tags.len > 0)
        err = weft_gram_tags((struct weft_str){tags.data, tags.len}, &gram, &why);
    if (err) {
        printf("%s: %s: %s\n", format, why.text, tools_json);
        bad = true;
    }
    for (int i = 0; gram && i < 6 && !bad; i++) {
        weft_buf_clear(&output);
        bool is_free = wish.choice == WEFT_MSG_AUTO && wish.format->syntax != WEFTI_MSG_HARMONY;
        if (!walk(gram, is_free && !has_special && below(2) ? wish.format->open : "", &output))
            continue;
        n_ended++;
        bad = check(tools_json, &wish, &output);
    }
    weft_gram_free(gram);
    drop_vocab();
    weft_buf_fini(&tags);
    weft_buf_fini(&output);
    weft_msg_tools_free(tools);
    free(tools_json);
    return bad ? -1 : n_ended;
}

int main(void) {
    const char *wanted = getenv("WEFT_SEED"), *names = weft_msg_format_names();
    uint64_t seed = wanted ? strtoull(wanted, NULL, 10) : 17;
    int n_bad = 0;
    printf("WEFT_SEED=%llu\n", (unsigned long long)seed);
    while (*names) {
        char format[32];
        size_t n = strcspn(names, ",");
        int n_ended = 0, n_here = 0;
        (void)snprintf(format, sizeof format, "%.*s", (int)n, names);
        names += n + strspn(names + n, ", ");
        rand_state = seed;
        n_calls = 0;
        for (int i = 0; i < N_WALKS && n_here < 3; i++) {
            int ended = try_one(format);
            if (ended < 0)
                n_here++;
            else
                n_ended += ended;
        }
        printf("%s: %d walks ended, with %u calls\n", format, n_ended, n_calls);
        n_bad += n_here + (n_calls < N_WALKS);
    }
    return n_bad > 0;
}
