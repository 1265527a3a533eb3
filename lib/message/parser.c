/* Thoughts, content and calls: the stages of an output. */
#include "parser.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/minmax.h"

/* Taken in at once, so that what is held stays bounded however much is pushed. */
#define SLICE_BYTES (64u << 10)

enum wefti_msg_match wefti_msg_look(const weft_msg_parser *p, const char *mark) {
    size_t len = strlen(mark), has = p->held.len - p->at;
    if (has == 0) return WEFTI_MSG_PART;
    if (memcmp(p->held.data + p->at, mark, has < len ? has : len) != 0) return WEFTI_MSG_MISS;
    return has < len ? WEFTI_MSG_PART : WEFTI_MSG_HIT;
}

void wefti_msg_tell(weft_msg_parser *p, enum weft_msg_kind kind, size_t end) {
    WEFT_ASSERT(p->told <= end && end <= p->held.len);
    struct weft_msg_event event = {kind, 0, {p->held.data + p->told, end - p->told}, {"", 0}};
    if (end > p->told) p->sink(p->context, &event);
    p->told = end;
}

static void skip_blanks(weft_msg_parser *p) {
    while (p->at < p->held.len && wefti_msg_is_blank(p->held.data[p->at]))
        p->at++;
}

static enum wefti_msg_verdict go_to(weft_msg_parser *p, enum wefti_msg_stage stage) {
    p->stage = stage;
    p->blank = p->at;
    return WEFTI_MSG_GO;
}

/* The output may open thoughts, again if the prompt did already. */
static enum wefti_msg_verdict start(weft_msg_parser *p) {
    skip_blanks(p);
    enum wefti_msg_match match = WEFTI_MSG_MISS;
    if (p->format->think_begin) match = wefti_msg_look(p, p->format->think_begin);
    if (match == WEFTI_MSG_PART && !p->is_end) return WEFTI_MSG_WAIT;
    if (match == WEFTI_MSG_HIT) {
        p->at += strlen(p->format->think_begin);
        p->told = p->at;
        return go_to(p, WEFTI_MSG_THOUGHT_LEAD);
    }
    p->at = p->told;
    return go_to(p, p->is_open ? WEFTI_MSG_THOUGHT_LEAD : WEFTI_MSG_ANSWER);
}

static enum wefti_msg_verdict skip_lead(weft_msg_parser *p, enum wefti_msg_stage next) {
    skip_blanks(p);
    p->told = p->at;
    return p->at < p->held.len ? go_to(p, next) : WEFTI_MSG_WAIT;
}

static enum wefti_msg_verdict read_thought(weft_msg_parser *p) {
    const char *end = p->format->think_end;
    for (; p->at < p->held.len; p->at++) {
        char c = p->held.data[p->at];
        if (wefti_msg_is_blank(c)) continue;
        enum wefti_msg_match match = c == end[0] ? wefti_msg_look(p, end) : WEFTI_MSG_MISS;
        if (match == WEFTI_MSG_PART && !p->is_end) break;
        if (match == WEFTI_MSG_HIT) {
            wefti_msg_tell(p, WEFT_MSG_THOUGHT, p->blank);
            p->at += strlen(end);
            p->told = p->at;
            return go_to(p, WEFTI_MSG_ANSWER_LEAD);
        }
        p->blank = p->at + 1;
    }
    wefti_msg_tell(p, WEFT_MSG_THOUGHT, p->is_end ? p->at : p->blank);
    return WEFTI_MSG_WAIT;
}

static enum wefti_msg_verdict read_answer(weft_msg_parser *p) {
    p->at = p->held.len;
    wefti_msg_tell(p, WEFT_MSG_CONTENT, p->at);
    return WEFTI_MSG_WAIT;
}

static enum wefti_msg_verdict step(weft_msg_parser *p) {
    switch (p->stage) {
    case WEFTI_MSG_START:
        return start(p);
    case WEFTI_MSG_THOUGHT_LEAD:
        return skip_lead(p, WEFTI_MSG_IN_THOUGHT);
    case WEFTI_MSG_IN_THOUGHT:
        return read_thought(p);
    case WEFTI_MSG_ANSWER_LEAD:
        return skip_lead(p, WEFTI_MSG_ANSWER);
    case WEFTI_MSG_ANSWER:
    case WEFTI_MSG_IN_CALLS:
        return read_answer(p);
    }
    return WEFTI_MSG_WAIT;
}

static void run(weft_msg_parser *p) {
    while (!p->err && !p->is_over && step(p) == WEFTI_MSG_GO)
        ;
    weft_buf_drop_front(&p->held, p->told);
    p->at -= p->told;
    p->blank -= weft_min_size(p->told, p->blank);
    p->told = 0;
}

weft_err weft_msg_parser_new(const struct weft_msg_setup *setup, weft_msg_parser **parser_out) {
    WEFT_ASSERT(setup->format);
    *parser_out = NULL;
    weft_msg_parser *p = calloc(1, sizeof *p);
    if (!p) return WEFT_E_NOMEM;
    p->format = setup->format;
    p->tools = setup->tools;
    p->calls_max = setup->calls_max;
    p->is_constrained = setup->is_constrained;
    p->is_open = weft_msg_thinking_after(p->format, setup->prompt_end) == WEFT_MSG_THINKS_OPEN;
    weft_buf_init(&p->held, SIZE_MAX / 8);
    *parser_out = p;
    return WEFT_OK;
}

void weft_msg_parser_free(weft_msg_parser *parser) {
    if (!parser) return;
    weft_buf_fini(&parser->held);
    free(parser);
}

weft_err weft_msg_push(weft_msg_parser *parser, struct weft_str text, weft_msg_sink sink,
                       void *context) {
    parser->sink = sink;
    parser->context = context;
    for (size_t from = 0; from < text.len && !parser->err && !parser->is_over;) {
        size_t n = weft_min_size(text.len - from, SLICE_BYTES);
        weft_buf_add(&parser->held, text.data + from, n);
        if (parser->held.failed) parser->err = WEFT_E_NOMEM;
        if (!parser->err) run(parser);
        from += n;
    }
    return parser->err;
}

weft_err weft_msg_finish(weft_msg_parser *parser, weft_msg_sink sink, void *context) {
    parser->sink = sink;
    parser->context = context;
    parser->is_end = true;
    if (!parser->err) run(parser);
    return parser->err;
}

bool weft_msg_is_thinking(const weft_msg_parser *parser) {
    switch (parser->stage) {
    case WEFTI_MSG_START:
        return parser->is_open;
    case WEFTI_MSG_THOUGHT_LEAD:
    case WEFTI_MSG_IN_THOUGHT:
        return true;
    default:
        return false;
    }
}

uint32_t weft_msg_calls(const weft_msg_parser *parser) {
    return parser->calls;
}

bool weft_msg_is_over(const weft_msg_parser *parser) {
    return parser->is_over;
}
