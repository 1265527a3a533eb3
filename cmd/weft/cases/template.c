/* `weft template`: chat templates rendered, for each case of a file. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/check.h"
#include "base/file.h"
#include "commands.h"
#include "json_text.h"
#include "template/template.h"
#include "tokenizer/tokenizer.h"

#define FILE_BYTES_MAX (64u << 20)
#define OUTPUT_BYTES_MAX (64u << 20)

static bool is_template_file(const char *path) {
    WEFT_ASSERT(path);
    size_t len = strlen(path);
    return len > 6 && !strcmp(path + len - 6, ".jinja");
}

/* The template's source, and the tokenizer that knows bos_token and eos_token (a file has none). */
static weft_err read_template(const char *path, char **source_out, size_t *len_out,
                              weft_tokenizer **tok, struct weft_errmsg *why) {
    if (is_template_file(path))
        return weft_file_read(path, WEFT_FILE_ANY, FILE_BYTES_MAX, source_out, len_out, why);
    weft_err err = weft_tmpl_find(path, source_out, why);
    if (!err && !*source_out)
        err = weft_err_set(why, WEFT_E_INVAL, "%s has no chat template", path);
    if (!err) err = weft_tok_open(path, tok, why);
    if (err) return err;
    WEFT_ASSERT(*source_out);
    *len_out = strlen(*source_out);
    return WEFT_OK;
}

static weft_err read_cases(const char *path, json_t **root_out, struct weft_errmsg *why) {
    char *text;
    size_t len;
    json_error_t where;
    weft_err err = weft_file_read(path, WEFT_FILE_ANY, FILE_BYTES_MAX, &text, &len, why);
    if (!err) {
        *root_out = json_loadb(text, len, JSON_ALLOW_NUL, &where);
        if (!*root_out)
            err = weft_err_set(why, WEFT_E_INVAL, "%s is not JSON: %s at line %d", path, where.text,
                               where.line);
        else if (!json_is_object(json_object_get(*root_out, "cases")))
            err = weft_err_set(why, WEFT_E_INVAL, "%s has no object \"cases\"", path);
    }
    free(text);
    return err;
}

/* *now_out is NULL where the file says nothing. */
static weft_err read_now(const json_t *root, struct tm *storage, const struct tm **now_out,
                         struct weft_errmsg *why) {
    const json_t *now = json_object_get(root, "now");
    *now_out = NULL;
    if (!now) return WEFT_OK;
    *storage = (struct tm){0};
    const char *end =
        json_is_string(now) ? strptime(json_string_value(now), "%Y-%m-%dT%H:%M:%S", storage) : NULL;
    if (!end || *end)
        return weft_err_set(why, WEFT_E_INVAL, "\"now\" is not like \"2025-03-14T15:09:26\"");
    (void)timegm(storage); /* fills in the day of the week */
    *now_out = storage;
    return WEFT_OK;
}

static void print_result(const char *name, const char *kind, const char *text, size_t len,
                         bool json, bool first) {
    if (!json) {
        printf("--- %s: %s\n", name, kind);
        (void)fwrite(text, 1, len, stdout);
        (void)fputc('\n', stdout);
        return;
    }
    (void)fputs(first ? "{\n " : ",\n ", stdout);
    weft_print_json_string(stdout, name, strlen(name));
    printf(": {\"%s\": ", kind);
    weft_print_json_string(stdout, text, len);
    (void)fputs("}", stdout);
}

/* A template that cannot be compiled fails in every case, as on a server. */
static void render_cases(const weft_tmpl *chat, const struct weft_errmsg *compile_why,
                         json_t *cases, const struct tm *now, bool as_json) {
    bool first = true;
    for (void *at = json_object_iter(cases); at; at = json_object_iter_next(cases, at)) {
        struct weft_errmsg why = *compile_why;
        struct weft_buf out;
        weft_buf_init(&out, OUTPUT_BYTES_MAX);
        weft_err err = WEFT_E_INVAL;
        if (chat)
            err = weft_tmpl_render_json(chat, json_object_iter_value(at), now, &out, NULL, &why);
        const char *text = err ? why.text : weft_buf_cstr(&out);
        print_result(json_object_iter_key(at), err ? "error" : "text", text,
                     err ? strlen(text) : out.len, as_json, first);
        first = false;
        weft_buf_fini(&out);
    }
    if (as_json) (void)fputs(first ? "{}\n" : "\n}\n", stdout);
}

int weft_cmd_template(const struct weft_config *config) {
    struct weft_errmsg why = {""}, compile_why = {""};
    char *source = NULL;
    size_t len = 0;
    weft_tokenizer *tok = NULL;
    weft_tmpl *chat = NULL;
    json_t *root = NULL;
    struct tm storage;
    const struct tm *now = NULL;
    weft_err err = read_template(config->model, &source, &len, &tok, &why);
    if (!err) err = read_cases(config->cases, &root, &why);
    if (!err) err = read_now(root, &storage, &now, &why);
    if (!err) {
        struct weft_tmpl_specials specials = {{NULL, 0}, {NULL, 0}};
        if (tok) {
            specials.bos_token = weft_tok_bos_token(tok);
            specials.eos_token = weft_tok_eos_token(tok);
        }
        if (weft_tmpl_new(source, len, &specials, &chat, &compile_why)) chat = NULL;
        render_cases(chat, &compile_why, json_object_get(root, "cases"), now, config->json);
    }
    json_decref(root);
    weft_tmpl_free(chat);
    weft_tok_free(tok);
    free(source);
    return err ? weft_cmd_fail(err, &why) : 0;
}
