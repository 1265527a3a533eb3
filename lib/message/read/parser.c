/* The stages of an output: thoughts, an answer, the calls in it. */
#include "read/parser.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/minmax.h"

/* Taken in at once, so that what is held stays bounded however much is pushed. */
#define SLICE_BYTES (64u << 10)
#define HELD_BYTES_MAX ((size_t)4 * WEFT_MSG_CALL_BYTES_MAX)

static enum wefti_msg_verdict go(weft_msg_parser *p, enum wefti_msg_stage stage) {
    p->stage = stage;
    p->blank = p->at;
    return WEFTI_MSG_GO;
}

/* --------------------------------------------------------------------------------- thoughts --- */

/* The output may open thoughts, again if the prompt did already. */
static enum wefti_msg_verdict start(weft_msg_parser *p) {
    const char *const begins[] = {p->format->think_begin, p->format->think_begin_too};
    const char *const ends[] = {p->format->think_end, p->format->think_end_too};
    bool is_part = false;
    wefti_msg_skip_blanks(p);
    bool is_early = p->at - p->told <= WEFTI_MSG_BLANKS_MAX;
    for (size_t i = 0; i < 2 && is_early; i++) {
        enum wefti_msg_match match = wefti_msg_take(p, begins[i]);
        is_part = is_part || match == WEFTI_MSG_PART;
        if (match != WEFTI_MSG_HIT) continue;
        p->think_end = ends[i];
        p->told = p->at;
        return go(p, WEFTI_MSG_THOUGHT_LEAD);
    }
    if (is_part) return WEFTI_MSG_WAIT;
    p->at = p->told;
    return go(p, p->is_open ? WEFTI_MSG_THOUGHT_LEAD : WEFTI_MSG_ANSWER);
}

static enum wefti_msg_verdict skip_lead(weft_msg_parser *p, enum wefti_msg_stage next) {
    wefti_msg_skip_blanks(p);
    p->told = p->at;
    return p->at < p->held.len ? go(p, next) : WEFTI_MSG_WAIT;
}

static enum wefti_msg_verdict read_thought(weft_msg_parser *p) {
    size_t which;
    enum wefti_msg_match match = wefti_msg_scan(p, &p->think_end, 1, &which);
    wefti_msg_tell(p, WEFT_MSG_THOUGHT, match != WEFTI_MSG_HIT && p->is_end ? p->at : p->blank);
    if (match != WEFTI_MSG_HIT) return WEFTI_MSG_WAIT;
    p->at += strlen(p->think_end);
    p->told = p->at;
    return go(p, WEFTI_MSG_ANSWER_LEAD);
}

/* ------------------------------------------------------------------------------------ calls --- */

static enum wefti_msg_verdict read_first(weft_msg_parser *p);

static enum wefti_msg_verdict begin_calls(weft_msg_parser *p, bool is_bare) {
    p->stage = WEFTI_MSG_IN_CALLS;
    p->read = read_first;
    p->state = 0;
    p->is_bare = is_bare;
    p->is_list = p->is_queued = p->has_call = false;
    weft_buf_clear(&p->queue);
    weft_buf_clear(&p->key);
    return WEFTI_MSG_GO;
}

/* Most formats take objects too, which some models write in other formats' tags. */
static enum wefti_msg_verdict read_first(weft_msg_parser *p) {
    wefti_msg_skip_blanks(p);
    if (p->at == p->held.len) return WEFTI_MSG_WAIT;
    char c = p->held.data[p->at];
    bool is_json = c == '{' || c == '[';
    switch (p->format->syntax) {
    case WEFTI_MSG_JSON_LIST:
        p->read = wefti_msg_read_json;
        if (!is_json && (p->format->ids == WEFT_MSG_IDS_NINE || c == '<'))
            p->read = wefti_msg_read_named;
        break;
    case WEFTI_MSG_NAMED_JSON:
        p->read = is_json && p->format->ids == WEFT_MSG_IDS_NINE ? wefti_msg_read_json
                                                                 : wefti_msg_read_named;
        break;
    case WEFTI_MSG_JSON_BARE:
        p->read = is_json ? wefti_msg_read_json : wefti_msg_read_python;
        break;
    case WEFTI_MSG_FUNCTION:
    case WEFTI_MSG_INVOKE:
    case WEFTI_MSG_PAIRS:
        p->read = is_json ? wefti_msg_read_json : wefti_msg_read_tags;
        break;
    case WEFTI_MSG_PYTHON:
        p->read = c == '{' ? wefti_msg_read_json : wefti_msg_read_python;
        break;
    case WEFTI_MSG_BRACES:
        p->read = is_json ? wefti_msg_read_json : wefti_msg_read_braces;
        break;
    default:
        p->read = wefti_msg_read_json;
    }
    return WEFTI_MSG_GO;
}

/* What was held of a call is content, but for what constrained deltas have told: the output can only end there, perhaps
 * within a mark. */
static enum wefti_msg_verdict break_call(weft_msg_parser *p) {
    bool is_told = p->is_constrained && p->is_named;
    if (is_told && p->is_end) p->at = p->held.len;
    if (is_told) p->told = p->at;
    while (p->has_call && p->told < p->at && wefti_msg_is_blank(p->held.data[p->told]))
        p->told++;
    wefti_msg_tell(p, WEFT_MSG_CONTENT, p->at);
    wefti_msg_begin_call(p);
    weft_buf_clear(&p->queue);
    return go(p, WEFTI_MSG_ANSWER);
}

static enum wefti_msg_verdict read_calls(weft_msg_parser *p) {
    enum wefti_msg_verdict verdict = p->read(p);
    if (wefti_msg_is_long(p)) { /* as if no more had come than may */
        p->at = p->told + WEFT_MSG_CALL_BYTES_MAX;
        return break_call(p);
    }
    if (verdict == WEFTI_MSG_DONE) return go(p, WEFTI_MSG_ANSWER_LEAD);
    if (verdict == WEFTI_MSG_BROKEN) return break_call(p);
    if (verdict == WEFTI_MSG_GO || !p->is_end) return verdict;
    p->at = p->held.len; /* cut off */
    return break_call(p);
}

/* ----------------------------------------------------------------------------------- answer --- */

/* A bare call begins an answer. */
static bool is_bare_begin(const weft_msg_parser *p) {
    char c = p->held.data[p->at];
    return (p->format->syntax == WEFTI_MSG_JSON_BARE && c == '{') ||
           (p->format->syntax == WEFTI_MSG_PYTHON && p->format->is_inner_bare && c == '[');
}

enum { MARKS_MAX = WEFTI_MSG_OPENS_MAX + 4 };

/* What may interrupt the answer: the end of its own tags, calls. */
static size_t list_marks(const weft_msg_parser *p, const char *marks[MARKS_MAX]) {
    const weft_msg_format *format = p->format;
    size_t n = 0;
    if (p->is_answer_open) marks[n++] = format->answer_end;
    if (!p->tools) return n;
    if (format->open) marks[n++] = format->open;
    for (size_t i = 0; i < WEFTI_MSG_OPENS_MAX && format->opens[i]; i++)
        marks[n++] = format->opens[i];
    if (format->inner) marks[n++] = format->inner;
    return n;
}

static enum wefti_msg_verdict read_mark(weft_msg_parser *p, const char *mark) {
    if (mark == p->format->answer_begin || mark == p->format->answer_end) {
        p->is_answer_open = mark == p->format->answer_begin;
        wefti_msg_tell(p, WEFT_MSG_CONTENT, p->blank);
        p->at += strlen(mark);
        p->told = p->at;
        return go(p, WEFTI_MSG_ANSWER_LEAD);
    }
    wefti_msg_tell(p, WEFT_MSG_CONTENT, p->blank);
    bool is_inner = mark == p->format->inner;
    if (!is_inner) p->at += strlen(mark);
    return begin_calls(p, is_inner && p->format->is_inner_bare);
}

/* The answer's first byte: a bare call or the answer's own tag may begin there, and nowhere else. */
static enum wefti_msg_verdict read_begin(weft_msg_parser *p) {
    wefti_msg_skip_blanks(p);
    if (p->at - p->told > WEFTI_MSG_BLANKS_MAX) {
        p->is_fresh = false;
        p->at = p->told;
        return WEFTI_MSG_GO;
    }
    if (p->at == p->held.len && !p->is_end) return WEFTI_MSG_WAIT;
    enum wefti_msg_match match = WEFTI_MSG_MISS;
    if (p->format->answer_begin) match = wefti_msg_look(p, p->format->answer_begin);
    if (match == WEFTI_MSG_PART && !p->is_end) return WEFTI_MSG_WAIT;
    p->is_fresh = false;
    if (match == WEFTI_MSG_HIT) return read_mark(p, p->format->answer_begin);
    if (p->at < p->held.len && p->tools && is_bare_begin(p)) return begin_calls(p, true);
    return WEFTI_MSG_GO;
}

static enum wefti_msg_verdict read_answer(weft_msg_parser *p) {
    const char *marks[MARKS_MAX];
    size_t which = 0;
    if (p->is_fresh) return read_begin(p);
    enum wefti_msg_match match = wefti_msg_scan(p, marks, list_marks(p, marks), &which);
    if (match == WEFTI_MSG_HIT) return read_mark(p, marks[which]);
    wefti_msg_tell(p, WEFT_MSG_CONTENT, p->is_end ? p->at : p->blank);
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
        return read_answer(p);
    case WEFTI_MSG_IN_CALLS:
        return read_calls(p);
    case WEFTI_MSG_IN_HARMONY:
        return wefti_msg_read_harmony(p);
    }
    return WEFTI_MSG_WAIT;
}

/* ----------------------------------------------------------------------------------- pushes --- */

static void drop_told(weft_msg_parser *p) {
    size_t n = p->told;
    weft_buf_drop_front(&p->held, n);
    p->at -= weft_min_size(n, p->at);
    p->blank -= weft_min_size(n, p->blank);
    p->from -= weft_min_size(n, p->from);
    p->told = 0;
}

static void run(weft_msg_parser *p) {
    while (!p->err && !p->is_over && step(p) == WEFTI_MSG_GO)
        ;
    (void)wefti_msg_has_failed(p);
    drop_told(p);
}

size_t weft_msg_parser_bytes(void) {
    return sizeof(struct weft_msg_parser);
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
    p->think_end = p->format->think_end;
    p->is_fresh = true;
    weft_buf_init(&p->held, HELD_BYTES_MAX);
    weft_buf_init(&p->name, WEFTI_MSG_HEAD_BYTES_MAX + 1);
    weft_buf_init(&p->id, WEFTI_MSG_HEAD_BYTES_MAX);
    weft_buf_init(&p->key, (size_t)8 * SLICE_BYTES);
    weft_buf_init(&p->args, (size_t)8 * WEFT_MSG_CALL_BYTES_MAX);
    weft_buf_init(&p->queue, (size_t)16 * WEFT_MSG_CALL_BYTES_MAX);
    if (p->format->syntax == WEFTI_MSG_HARMONY) {
        p->stage = WEFTI_MSG_IN_HARMONY;
        wefti_msg_begin_harmony(p, setup->prompt_end);
    }
    *parser_out = p;
    return WEFT_OK;
}

void weft_msg_parser_free(weft_msg_parser *parser) {
    if (!parser) return;
    weft_buf_fini(&parser->held);
    weft_buf_fini(&parser->name);
    weft_buf_fini(&parser->id);
    weft_buf_fini(&parser->key);
    weft_buf_fini(&parser->args);
    weft_buf_fini(&parser->queue);
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
    case WEFTI_MSG_IN_HARMONY:
        return wefti_msg_harmony_thinks(parser);
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
