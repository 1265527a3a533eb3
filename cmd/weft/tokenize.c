/* `weft tokenize`: text on standard input to ids; with --json a list of strings to a list of lists.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "commands.h"
#include "input.h"
#include "json_text.h"
#include "tokenizer/tokenizer.h"

#define INPUT_BYTES_MAX (256u << 20)

static weft_err print_ids(const weft_tokenizer *tok, const char *text, size_t len, uint32_t flags,
                          struct weft_errmsg *why) {
    uint32_t *ids = NULL;
    size_t n = 0;
    weft_err err = weft_tok_encode(
        tok, &(struct weft_tok_input){{text, len}, flags, INPUT_BYTES_MAX}, &ids, &n, why);
    if (!err) weft_print_json_ids(stdout, ids, n);
    free(ids);
    return err;
}

static weft_err print_lists(const weft_tokenizer *tok, const struct weft_buf *input, uint32_t flags,
                            struct weft_errmsg *why) {
    json_error_t where;
    json_t *root = json_loadb(input->data ? input->data : "", input->len, JSON_ALLOW_NUL, &where);
    weft_err err = WEFT_OK;
    if (!root)
        return weft_err_set(why, WEFT_E_INVAL, "standard input is not JSON: %s at line %d",
                            where.text, where.line);
    if (!json_is_array(root)) {
        err = weft_err_set(why, WEFT_E_INVAL, "standard input is not a JSON list of strings");
        goto cleanup;
    }
    printf("[");
    for (size_t i = 0; i < json_array_size(root) && !err; i++) {
        const json_t *item = json_array_get(root, i);
        if (!json_is_string(item)) {
            err = weft_err_set(why, WEFT_E_INVAL, "item %zu of the list is not a string", i);
            break;
        }
        if (i) printf(",\n");
        err = print_ids(tok, json_string_value(item), json_string_length(item), flags, why);
    }
    printf("]\n");
cleanup:
    json_decref(root);
    return err;
}

int weft_cmd_tokenize(const struct weft_config *config) {
    struct weft_errmsg why = {""};
    struct weft_buf input;
    weft_tokenizer *tok = NULL;
    uint32_t flags = (config->no_bos ? 0 : WEFT_TOK_ADD_SPECIAL) |
                     (config->no_parse_special ? 0 : WEFT_TOK_PARSE_SPECIAL);
    weft_buf_init(&input, INPUT_BYTES_MAX);
    weft_err err = weft_tok_open(config->model, &tok, &why);
    if (!err) err = weft_input_read(&input, &why);
    if (!err && config->json) {
        err = print_lists(tok, &input, flags, &why);
    } else if (!err) {
        err = print_ids(tok, input.data ? input.data : "", input.len, flags, &why);
        if (!err) printf("\n");
    }
    weft_tok_free(tok);
    weft_buf_fini(&input);
    return err ? weft_cmd_fail(err, &why) : 0;
}
