/* What tests of messages wish for: tools from JSON, and schemas judged by the grammar module. */
#ifndef WEFT_TESTS_MESSAGE_WISH_H
#define WEFT_TESTS_MESSAGE_WISH_H

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "grammar/grammar.h"
#include "message/message.h"

static inline bool test_has_no_special(void *context, struct weft_str text) {
    (void)context;
    (void)text;
    return false;
}

static inline bool test_can_honour(void *context, struct weft_str schema) {
    weft_gram *gram;
    (void)context;
    weft_err err = weft_gram_schema(schema, &gram, NULL);
    weft_gram_free(gram);
    return !err;
}

static inline weft_msg_tools *test_tools(const char *json) {
    weft_msg_tools *tools;
    json_t *list = json_loads(json, 0, NULL);
    WEFT_ASSERT(list);
    weft_err err = weft_msg_tools_new(list, &tools, NULL);
    WEFT_ASSERT(!err);
    json_decref(list);
    return tools;
}

static inline struct weft_msg_wish test_wish(const char *format, const weft_msg_tools *tools,
                                             enum weft_msg_choice choice) {
    return (struct weft_msg_wish){
        .format = weft_msg_format_named((struct weft_str){format, strlen(format)}),
        .tools = tools,
        .choice = choice,
        .has_special = test_has_no_special,
        .can_honour = test_can_honour};
}

#endif
