/* bad_words as tokens: of each word as it is, and behind a blank, as it stands within a text. */
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/check.h"
#include "call/prepare.h"

struct list {
    uint32_t *numbers; /* as in weft_sampling */
    uint32_t n;
};

/* Whether these tokens are the last of those, so that what forbids them forbids those. */
static bool ends_with(const uint32_t *all, size_t n_all, const uint32_t *end, size_t n_end) {
    return n_end > 0 && n_end <= n_all &&
           memcmp(all + n_all - n_end, end, n_end * sizeof *end) == 0;
}

static void fail(weft_api_call *call, weft_err err, struct weft_str word,
                 const struct weft_errmsg *why) {
    char quoted[48];
    weft_api_quote(word.data, word.len, quoted, sizeof quoted);
    if (err == WEFT_E_NOMEM)
        weft_api_error_set(&call->error, 500, NULL, NULL, "out of memory");
    else if (err == WEFT_E_TOOBIG)
        weft_api_error_set(&call->error, 400, "bad_words", NULL,
                           "'bad_words' have too many tokens, at most %d with one for each",
                           WEFT_BAD_WORDS_MAX);
    else
        weft_api_error_set(&call->error, 400, "bad_words", NULL,
                           "'bad_words' holds '%s', which has no tokens%s%s", quoted,
                           why->text[0] ? ": " : "", why->text);
}

/* A text's tokens, behind their number, at the end of the list. Not those that end with the `n_known` last numbers. */
static uint32_t add(weft_api_call *call, struct list *list, struct weft_str text,
                    uint32_t n_known) {
    struct weft_errmsg why = {""};
    size_t room = WEFT_BAD_WORDS_MAX - list->n, n = 0;
    uint32_t *ids = NULL;
    const struct weft_tok_input input = {text, WEFT_TOK_PARSE_SPECIAL, room ? room - 1 : 0};
    weft_err err = weft_tok_encode(call->api->tok, &input, &ids, &n, &why);
    if (!err && n == 0) err = WEFT_E_INVAL;
    if (!err && n + 1 > room) err = WEFT_E_TOOBIG;
    if (err) fail(call, err, text, &why);
    if (!err && !ends_with(ids, n, list->numbers + list->n - n_known, n_known)) {
        list->numbers[list->n] = (uint32_t)n;
        memcpy(list->numbers + list->n + 1, ids, n * sizeof *ids);
        list->n += (uint32_t)n + 1;
    }
    free(ids);
    return err ? 0 : (uint32_t)n;
}

static void add_word(weft_api_call *call, struct list *list, const json_t *item) {
    char spaced[API_BAD_WORD_BYTES_MAX + 1] = " ";
    struct weft_str word = {json_string_value(item), json_string_length(item)};
    while (word.len > 1 && strchr(" \t\r\n", word.data[0]) && word.data[0]) {
        word.data++;
        word.len--;
    }
    WEFT_ASSERT(word.len < sizeof spaced);
    memcpy(spaced + 1, word.data, word.len);
    uint32_t n = add(call, list, word, 0);
    if (n > 0) (void)add(call, list, (struct weft_str){spaced, word.len + 1}, n);
}

void wefti_api_encode_bad_words(weft_api_call *call) {
    struct params *p = &call->params;
    const json_t *item;
    struct list list = {.n = 0};
    size_t i;
    WEFT_ASSERT(!p->bad_words);
    list.numbers = malloc(WEFT_BAD_WORDS_MAX * sizeof *list.numbers);
    p->bad_words = list.numbers;
    if (!list.numbers) {
        weft_api_error_set(&call->error, 500, NULL, NULL, "out of memory");
        return;
    }
    json_array_foreach(p->bad_words_wanted, i, item) {
        if (!call->error.status) add_word(call, &list, item);
    }
    uint32_t *less = realloc(list.numbers, (list.n + 1) * sizeof *less);
    if (less) p->bad_words = less;
    p->sampling.bad_words = p->bad_words;
    p->sampling.n_bad_words = list.n;
}
