/* A mark, a name, a mark, arguments as JSON, a mark: DeepSeek, Kimi K2, Mistral, Hunyuan.
 *
 *   DeepSeek V3.1  <｜tool▁call▁begin｜>NAME<｜tool▁sep｜>{...}<｜tool▁call▁end｜>
 *   DeepSeek V3    <｜tool▁call▁begin｜>function<｜tool▁sep｜>NAME, then ```json, {...}, ``` on lines of their own
 *   Kimi K2        <|tool_call_begin|>functions.NAME:NUMBER<|tool_call_argument_begin|>{...}<|tool_call_end|>
 *   Mistral        [TOOL_CALLS]NAME[CALL_ID]ID[ARGS]{...}; [CALL_ID]ID and, in some versions, [ARGS] are left out
 *   Hunyuan        <tool_call>NAME, then as DeepSeek V3, </tool_call>
 */
#include "read/parser.h"

enum named_state {
    OPENED, /* zero */
    NAME,
    CALL_ID,
    FENCED_NAME,
    FENCE,
    ARGUMENTS,
    IN_ARGUMENTS,
    FENCE_END,
    CALL_END,
};

struct way {
    const char *begin, *separator, *end;
};

static struct way way_of(const weft_msg_parser *p) {
    if (p->format->ids == WEFT_MSG_IDS_NUMBER)
        return (struct way){"<|tool_call_begin|>", "<|tool_call_argument_begin|>",
                            "<|tool_call_end|>"};
    if (p->format->ids == WEFT_MSG_IDS_NINE) return (struct way){NULL, "[ARGS]", NULL};
    if (p->format->syntax == WEFTI_MSG_JSON_LIST)
        return (struct way){"<tool_call>", NULL, "</tool_call>"};
    return (struct way){"<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"};
}

static enum wefti_msg_verdict go(weft_msg_parser *p, enum named_state state) {
    p->state = (int)state;
    p->from = p->at;
    return WEFTI_MSG_GO;
}

/* Between calls: one more, or the end of all. */
static enum wefti_msg_verdict opened(weft_msg_parser *p, const struct way *way) {
    wefti_msg_skip_blanks(p);
    if (p->has_call) p->told = p->at;
    if (p->at == p->held.len && !p->is_end) return WEFTI_MSG_WAIT;
    if (!way->begin && p->has_call) { /* Mistral's: each call has the mark of all */
        enum wefti_msg_match more = wefti_msg_take(p, p->format->open);
        if (more == WEFTI_MSG_PART) return WEFTI_MSG_WAIT;
        if (more == WEFTI_MSG_MISS) return WEFTI_MSG_DONE;
    }
    enum wefti_msg_match begin = way->begin ? wefti_msg_take(p, way->begin) : WEFTI_MSG_HIT;
    if (begin == WEFTI_MSG_HIT) {
        wefti_msg_begin_call(p);
        return go(p, way->separator ? NAME : FENCED_NAME);
    }
    enum wefti_msg_match close = wefti_msg_take_close(p);
    if (close == WEFTI_MSG_HIT) {
        p->told = p->at;
        return WEFTI_MSG_DONE;
    }
    if (begin == WEFTI_MSG_PART || close == WEFTI_MSG_PART) return WEFTI_MSG_WAIT;
    return p->has_call ? WEFTI_MSG_DONE : WEFTI_MSG_BROKEN;
}

/* "functions.NAME:NUMBER" is an id, with the name in it. */
static bool name_by_id(weft_msg_parser *p, struct weft_str id) {
    static const char prefix[] = "functions.";
    struct weft_str name = id;
    if (id.len >= sizeof prefix - 1 && memcmp(id.data, prefix, sizeof prefix - 1) == 0) {
        name.data += sizeof prefix - 1;
        name.len -= sizeof prefix - 1;
    }
    size_t n_digits = 0;
    while (n_digits < name.len && name.data[name.len - 1 - n_digits] >= '0' &&
           name.data[name.len - 1 - n_digits] <= '9')
        n_digits++;
    bool is_numbered =
        n_digits > 0 && n_digits < name.len && name.data[name.len - 1 - n_digits] == ':';
    if (is_numbered) name.len -= n_digits + 1;
    return wefti_msg_name(p, name, is_numbered ? id : (struct weft_str){"", 0});
}

/* The name ends before one of these bytes, which begins what comes next. */
static enum wefti_msg_verdict read_to(weft_msg_parser *p, const char *stops) {
    while (p->at < p->held.len) {
        char c = p->held.data[p->at];
        if (c != '\0' && strchr(stops, c)) return WEFTI_MSG_GO;
        if (p->at - p->from > WEFTI_MSG_HEAD_BYTES_MAX) return WEFTI_MSG_BROKEN;
        p->at++;
    }
    return WEFTI_MSG_WAIT;
}

static enum wefti_msg_verdict read_name(weft_msg_parser *p, const struct way *way) {
    bool is_mistral = !way->begin;
    enum wefti_msg_verdict verdict = read_to(p, is_mistral ? "[{" : "<");
    if (verdict != WEFTI_MSG_GO) return verdict;
    struct weft_str text = wefti_msg_trimmed(p, p->from, p->at), none = {"", 0};
    enum wefti_msg_match id = is_mistral ? wefti_msg_look(p, "[CALL_ID]") : WEFTI_MSG_MISS;
    bool is_object = p->held.data[p->at] == '{';
    enum wefti_msg_match match = is_object ? WEFTI_MSG_HIT : wefti_msg_look(p, way->separator);
    if ((id == WEFTI_MSG_PART || match == WEFTI_MSG_PART) && !p->is_end) return WEFTI_MSG_WAIT;
    if (id == WEFTI_MSG_HIT) {
        weft_buf_add(&p->name, text.data, text.len); /* until the id is known */
        p->at += sizeof "[CALL_ID]" - 1;
        return go(p, CALL_ID);
    }
    if (match != WEFTI_MSG_HIT) return WEFTI_MSG_BROKEN;
    if (!is_object && way->separator) p->at += strlen(way->separator);
    bool is_fenced = p->format->ids == WEFT_MSG_IDS_FREE && WEFT_STR_IS(text, "function");
    if (is_fenced) return go(p, FENCED_NAME);
    bool is_kimi = p->format->ids == WEFT_MSG_IDS_NUMBER;
    if (is_kimi ? !name_by_id(p, text) : !wefti_msg_name(p, text, none)) return WEFTI_MSG_BROKEN;
    return go(p, ARGUMENTS);
}

static enum wefti_msg_verdict read_id(weft_msg_parser *p, const struct way *way) {
    enum wefti_msg_verdict verdict = read_to(p, "[{");
    if (verdict != WEFTI_MSG_GO) return verdict;
    struct weft_str id = wefti_msg_trimmed(p, p->from, p->at);
    if (id.len > WEFT_MSG_NAME_BYTES_MAX) return WEFTI_MSG_BROKEN;
    enum wefti_msg_match match = wefti_msg_take(p, way->separator);
    if (match == WEFTI_MSG_PART) return WEFTI_MSG_WAIT;
    if (match == WEFTI_MSG_MISS && p->held.data[p->at] != '{') return WEFTI_MSG_BROKEN;
    char name[WEFTI_MSG_HEAD_BYTES_MAX + 1];
    struct weft_str text = {name, p->name.len};
    memcpy(name, p->name.data, text.len);
    weft_buf_clear(&p->name);
    if (!wefti_msg_name(p, text, id)) return WEFTI_MSG_BROKEN;
    return go(p, ARGUMENTS);
}

/* A line of its own, or what stands before the fence. "function" may be a tool's name, too: then this is its object. */
static enum wefti_msg_verdict read_fenced_name(weft_msg_parser *p) {
    if (p->at == p->from) {
        wefti_msg_skip_blanks(p);
        p->from = p->at;
    }
    enum wefti_msg_verdict verdict = read_to(p, "\n`{<");
    if (verdict != WEFTI_MSG_GO) return verdict;
    struct weft_str name = wefti_msg_trimmed(p, p->from, p->at);
    if (name.len == 0 && p->held.data[p->at] == '{') name = (struct weft_str){"function", 8};
    if (!wefti_msg_name(p, name, (struct weft_str){"", 0})) return WEFTI_MSG_BROKEN;
    return go(p, FENCE);
}

/* ```json, or ``` alone, or nothing. */
static enum wefti_msg_verdict read_fence(weft_msg_parser *p) {
    wefti_msg_skip_blanks(p);
    enum wefti_msg_match match = wefti_msg_look(p, "```json");
    if (match == WEFTI_MSG_PART && !p->is_end) return WEFTI_MSG_WAIT;
    p->at += match == WEFTI_MSG_HIT ? 7 : wefti_msg_look(p, "```") == WEFTI_MSG_HIT ? 3 : 0;
    return go(p, ARGUMENTS);
}

static enum wefti_msg_verdict begin_arguments(weft_msg_parser *p, const struct way *way) {
    wefti_msg_skip_blanks(p);
    enum wefti_msg_match end = wefti_msg_take(p, way->end);
    if (end == WEFTI_MSG_PART) return WEFTI_MSG_WAIT;
    if (end == WEFTI_MSG_HIT) { /* no arguments at all */
        (void)go(p, OPENED);
        return wefti_msg_end_call(p);
    }
    if (p->at == p->held.len) return WEFTI_MSG_WAIT;
    p->json = (struct wefti_msg_json){0};
    p->from = p->at;
    if (!wefti_msg_args_begin(p)) return WEFTI_MSG_BROKEN;
    p->state = IN_ARGUMENTS;
    return WEFTI_MSG_GO;
}

static enum wefti_msg_verdict read_arguments(weft_msg_parser *p) {
    while (p->at < p->held.len && !p->json.is_over) {
        if (wefti_msg_json_feed(&p->json, p->held.data[p->at]) == WEFTI_MSG_BAD) {
            wefti_msg_args_more(p);
            return WEFTI_MSG_BROKEN;
        }
        p->at++;
    }
    if (!p->json.is_over) {
        wefti_msg_args_more(p);
        return WEFTI_MSG_WAIT;
    }
    if (!wefti_msg_args_end(p, p->at)) return WEFTI_MSG_BROKEN;
    (void)go(p, FENCE_END);
    return wefti_msg_end_call(p);
}

/* The call is told; what may follow is a fence and its mark. */
static enum wefti_msg_verdict read_end(weft_msg_parser *p, const char *mark,
                                       enum named_state next) {
    wefti_msg_skip_blanks(p);
    p->told = p->at;
    enum wefti_msg_match match = wefti_msg_take(p, mark);
    if (match == WEFTI_MSG_PART) return WEFTI_MSG_WAIT;
    p->told = p->at;
    return go(p, next);
}

enum wefti_msg_verdict wefti_msg_read_named(weft_msg_parser *p) {
    struct way way = way_of(p);
    switch ((enum named_state)p->state) {
    case OPENED:
        return opened(p, &way);
    case NAME:
        return read_name(p, &way);
    case CALL_ID:
        return read_id(p, &way);
    case FENCED_NAME:
        return read_fenced_name(p);
    case FENCE:
        return read_fence(p);
    case ARGUMENTS:
        return begin_arguments(p, &way);
    case IN_ARGUMENTS:
        return read_arguments(p);
    case FENCE_END:
        return read_end(p, way.begin ? "```" : NULL, CALL_END);
    case CALL_END:
        return read_end(p, way.end, OPENED);
    }
    return WEFTI_MSG_BROKEN;
}
