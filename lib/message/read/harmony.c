/* Harmony, gpt-oss's: messages, each with a header that says to whom it goes and on which channel.
 *
 *   <|start|>assistant to=functions.NAME<|channel|>commentary <|constrain|>json<|message|>{...}<|call|>
 *
 * The prompt ends after "assistant", so the first header lacks that. Where the output ends stands in place of the last
 * mark. Messages to nobody are thoughts on the analysis channel, else content; two of a kind are
 * parted by a newline. */
#include "read/parser.h"

enum harmony_state {
    FIRST, /* zero: before the first header */
    HEADER,
    BODY_LEAD,
    BODY,
    ARGUMENTS,
    IN_ARGUMENTS,
    AFTER_CALL,
    BETWEEN,
};

static const char start_mark[] = "<|start|>", channel_mark[] = "<|channel|>",
                  message_mark[] = "<|message|>", constrain_mark[] = "<|constrain|>",
                  end_mark[] = "<|end|>", call_mark[] = "<|call|>", return_mark[] = "<|return|>";

static enum wefti_msg_verdict go(weft_msg_parser *p, enum harmony_state state) {
    p->state = (int)state;
    p->from = p->blank = p->at;
    return WEFTI_MSG_GO;
}

static enum wefti_msg_verdict begin_body(weft_msg_parser *p, enum weft_msg_kind kind) {
    p->is_thought = kind == WEFT_MSG_THOUGHT;
    p->is_new = true;
    p->told = p->at;
    return go(p, BODY_LEAD);
}

/* What should have been a header or a call is content, and so is what follows it in this message. */
static enum wefti_msg_verdict give_up(weft_msg_parser *p) {
    bool is_told = p->is_constrained && p->is_named;
    p->is_new = true;
    p->is_named = false;
    p->is_thought = false;
    if (is_told) p->told = p->at;
    return go(p, BODY);
}

/* --------------------------------------------------------------------------------- headers --- */

static enum wefti_msg_verdict read_first(weft_msg_parser *p) {
    static const char *const marks[] = {channel_mark, start_mark, message_mark, constrain_mark,
                                        "to="};
    bool is_part = false;
    size_t begin = p->at;
    wefti_msg_skip_blanks(p);
    bool is_early = p->at - begin <= WEFTI_MSG_HEAD_BYTES_MAX;
    for (size_t i = 0; i < sizeof marks / sizeof *marks && is_early; i++) {
        enum wefti_msg_match match = wefti_msg_look(p, marks[i]);
        if (match == WEFTI_MSG_HIT) return go(p, HEADER);
        is_part = is_part || match == WEFTI_MSG_PART;
    }
    p->at = begin;
    return is_part && !p->is_end ? WEFTI_MSG_WAIT : give_up(p);
}

/* Where `mark` begins in a header; NULL: nowhere. */
static const char *find(struct weft_str header, const char *mark) {
    return memmem(header.data, header.len, mark, strlen(mark));
}

/* The word after `mark`. */
static struct weft_str word_after(struct weft_str header, const char *mark) {
    const char *end = header.data + header.len, *at = find(header, mark);
    if (!at) return (struct weft_str){"", 0};
    at += strlen(mark);
    const char *last = at;
    while (last < end && !wefti_msg_is_blank(*last) && *last != '<')
        last++;
    return (struct weft_str){at, (size_t)(last - at)};
}

static struct weft_str recipient_of(struct weft_str header) {
    static const char prefix[] = "functions.";
    struct weft_str to = word_after(header, "to=");
    if (to.len > sizeof prefix - 1 && memcmp(to.data, prefix, sizeof prefix - 1) == 0) {
        to.data += sizeof prefix - 1;
        to.len -= sizeof prefix - 1;
    }
    return to;
}

/* A header that ends before held[at], where its <|message|> is. */
static enum wefti_msg_verdict end_header(weft_msg_parser *p) {
    struct weft_str header = {p->held.data + p->told, p->at - p->told};
    struct weft_str to = recipient_of(header), channel = word_after(header, channel_mark);
    p->at += sizeof message_mark - 1;
    if (to.len == 0) {
        bool is_thought = WEFT_STR_IS(channel, "analysis");
        return begin_body(p, is_thought ? WEFT_MSG_THOUGHT : WEFT_MSG_CONTENT);
    }
    wefti_msg_begin_call(p);
    if (!p->tools || !wefti_msg_name(p, to, (struct weft_str){"", 0})) return give_up(p);
    return go(p, ARGUMENTS);
}

/* A header that never ends is dropped, unless it calls: it consists of marks. */
static enum wefti_msg_verdict end_unfinished(weft_msg_parser *p) {
    struct weft_str header = {p->held.data + p->told, p->held.len - p->told};
    p->at = p->held.len;
    if (!find(header, "to=")) p->told = p->at;
    return give_up(p);
}

static enum wefti_msg_verdict read_header(weft_msg_parser *p) {
    static const char *const inside[] = {channel_mark, constrain_mark, start_mark};
    for (; p->at < p->held.len; p->at++) {
        if (p->at - p->told > WEFTI_MSG_HEAD_BYTES_MAX) return give_up(p);
        if (p->held.data[p->at] != '<') continue;
        enum wefti_msg_match match = wefti_msg_look(p, message_mark);
        if (match == WEFTI_MSG_HIT) return end_header(p);
        bool is_part = match == WEFTI_MSG_PART, is_inside = false;
        for (size_t i = 0; i < sizeof inside / sizeof *inside; i++) {
            match = wefti_msg_look(p, inside[i]);
            is_part = is_part || match == WEFTI_MSG_PART;
            is_inside = is_inside || match == WEFTI_MSG_HIT;
        }
        if (is_part && !p->is_end) return WEFTI_MSG_WAIT;
        if (!is_inside && !is_part) return give_up(p);
    }
    return p->is_end ? end_unfinished(p) : WEFTI_MSG_WAIT;
}

/* ---------------------------------------------------------------------------------- bodies --- */

static enum wefti_msg_verdict skip_lead(weft_msg_parser *p) {
    wefti_msg_skip_blanks(p);
    p->told = p->at;
    return p->at < p->held.len ? go(p, BODY) : WEFTI_MSG_WAIT;
}

static void say(weft_msg_parser *p, size_t end) {
    enum weft_msg_kind kind = p->is_thought ? WEFT_MSG_THOUGHT : WEFT_MSG_CONTENT;
    bool *has_said = p->is_thought ? &p->has_thought : &p->has_content;
    if (end <= p->told) return;
    struct weft_msg_event newline = {kind, 0, {"\n", 1}, {"", 0}};
    if (p->is_new && *has_said) p->sink(p->context, &newline);
    p->is_new = false;
    *has_said = true;
    wefti_msg_tell(p, kind, end);
}

static enum wefti_msg_verdict read_body(weft_msg_parser *p) {
    static const char *const marks[] = {end_mark, return_mark, call_mark, start_mark, channel_mark};
    size_t which;
    enum wefti_msg_match match = wefti_msg_scan(p, marks, sizeof marks / sizeof *marks, &which);
    say(p, match != WEFTI_MSG_HIT && p->is_end ? p->at : p->blank);
    if (match != WEFTI_MSG_HIT) return WEFTI_MSG_WAIT;
    if (which < 3) p->at += strlen(marks[which]);
    p->told = p->at;
    return go(p, BETWEEN);
}

static enum wefti_msg_verdict begin_arguments(weft_msg_parser *p) {
    static const char *const marks[] = {end_mark, call_mark, return_mark};
    wefti_msg_skip_blanks(p);
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        enum wefti_msg_match match = wefti_msg_take(p, marks[i]);
        if (match == WEFTI_MSG_PART) return WEFTI_MSG_WAIT;
        if (match == WEFTI_MSG_MISS) continue;
        (void)go(p, BETWEEN); /* no arguments at all */
        return wefti_msg_end_call(p);
    }
    if (p->at == p->held.len) return WEFTI_MSG_WAIT;
    p->json = (struct wefti_msg_json){0};
    p->from = p->at;
    if (!wefti_msg_args_begin(p)) return give_up(p);
    p->state = IN_ARGUMENTS;
    return WEFTI_MSG_GO;
}

static enum wefti_msg_verdict read_arguments(weft_msg_parser *p) {
    while (p->at < p->held.len && !p->json.is_over) {
        bool is_bad = wefti_msg_json_feed(&p->json, p->held.data[p->at]) == WEFTI_MSG_BAD;
        if (is_bad || wefti_msg_is_long(p)) {
            wefti_msg_args_more(p);
            return give_up(p);
        }
        p->at++;
    }
    if (!p->json.is_over) {
        wefti_msg_args_more(p);
        return WEFTI_MSG_WAIT;
    }
    if (!wefti_msg_args_end(p, p->at)) return give_up(p);
    (void)go(p, AFTER_CALL);
    return wefti_msg_end_call(p);
}

/* The mark at the end of a message, where it wasn't read yet. */
static enum wefti_msg_verdict after_call(weft_msg_parser *p) {
    static const char *const marks[] = {call_mark, end_mark, return_mark};
    wefti_msg_skip_blanks(p);
    p->told = p->at;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        bool is_part = wefti_msg_look(p, marks[i]) == WEFTI_MSG_PART;
        /* A constrained output has nothing else there, and so may end within it. */
        if (is_part && p->is_end && p->is_constrained && p->at < p->held.len) p->at = p->held.len;
        enum wefti_msg_match match = wefti_msg_take(p, marks[i]);
        if (match == WEFTI_MSG_PART) return WEFTI_MSG_WAIT;
        if (match == WEFTI_MSG_HIT) break;
    }
    p->told = p->at;
    return go(p, BETWEEN);
}

static enum wefti_msg_verdict between(weft_msg_parser *p) {
    static const char *const marks[] = {start_mark, channel_mark};
    wefti_msg_skip_blanks(p);
    p->told = p->at;
    if (p->at == p->held.len) return WEFTI_MSG_WAIT;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        enum wefti_msg_match match = wefti_msg_look(p, marks[i]);
        if (match == WEFTI_MSG_PART && !p->is_end) return WEFTI_MSG_WAIT;
        if (match == WEFTI_MSG_HIT) return go(p, HEADER);
    }
    return begin_body(p, WEFT_MSG_CONTENT);
}

static enum wefti_msg_verdict step(weft_msg_parser *p) {
    switch ((enum harmony_state)p->state) {
    case FIRST:
        return read_first(p);
    case HEADER:
        return read_header(p);
    case BODY_LEAD:
        return skip_lead(p);
    case BODY:
        return read_body(p);
    case ARGUMENTS:
        return begin_arguments(p);
    case IN_ARGUMENTS:
        return read_arguments(p);
    case AFTER_CALL:
        return after_call(p);
    case BETWEEN:
        return between(p);
    }
    return WEFTI_MSG_WAIT;
}

enum wefti_msg_verdict wefti_msg_read_harmony(weft_msg_parser *p) {
    enum wefti_msg_verdict verdict = step(p);
    bool is_call = p->state == ARGUMENTS || p->state == IN_ARGUMENTS;
    if (verdict != WEFTI_MSG_WAIT || !p->is_end || !is_call) return verdict;
    p->at = p->held.len; /* cut off */
    return give_up(p);
}

/* The prompt may end within a message, where an answer was begun for the model. */
void wefti_msg_begin_harmony(weft_msg_parser *p, struct weft_str prompt_end) {
    size_t len = sizeof message_mark - 1;
    if (prompt_end.len < len ||
        memcmp(prompt_end.data + prompt_end.len - len, message_mark, len) != 0)
        return;
    static const char thinking[] = "<|channel|>analysis<|message|>";
    size_t n = sizeof thinking - 1;
    p->is_thought =
        prompt_end.len >= n && memcmp(prompt_end.data + prompt_end.len - n, thinking, n) == 0;
    p->state = p->is_thought ? BODY_LEAD : BODY;
}

bool wefti_msg_harmony_thinks(const weft_msg_parser *p) {
    return p->is_thought && (p->state == BODY_LEAD || p->state == BODY);
}
