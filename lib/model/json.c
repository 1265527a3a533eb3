#include "json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/check.h"
#include "base/file.h"
#include "packed/packed.h"

#define PATH_BYTES_MAX 4096

/* The length of a number's word at text[i]; 0: there is none. */
static size_t word_at(struct weft_str text, size_t i) {
    static const char *const words[] = {"-Infinity", "Infinity", "NaN"};
    for (size_t w = 0; w < sizeof words / sizeof words[0]; w++) {
        const size_t len = strlen(words[w]);
        if (text.len - i >= len && memcmp(text.data + i, words[w], len) == 0) return len;
    }
    return 0;
}

/* The text with such words in quotes, where they are not in a string already, into `out` if it is not NULL; its length,
 * which is that of the text if there are none. */
static size_t quote_words(struct weft_str text, char *out) {
    bool in_string = false;
    size_t len = 0;
    for (size_t i = 0, n; i < text.len; i += n) {
        const size_t word = in_string ? 0 : word_at(text, i);
        n = word > 0 ? word : in_string && text.data[i] == '\\' && i + 1 < text.len ? 2 : 1;
        if (text.data[i] == '"') in_string = !in_string;
        if (word > 0 && out) out[len] = '"';
        len += word > 0;
        if (out) memcpy(out + len, text.data + i, n);
        len += n;
        if (word > 0 && out) out[len] = '"';
        len += word > 0;
    }
    return len;
}

/* Python's json writes numbers that JSON has not as bare words: they become strings, so that keys of no matter do not
 * keep a file from being read, and those that matter are refused by name. NULL: it cannot be read all the same. */
static json_t *load_with_words(struct weft_str text, size_t flags, json_error_t *error) {
    const size_t len = quote_words(text, NULL);
    char *copy = len > text.len ? malloc(len) : NULL;
    if (!copy) return NULL;
    (void)quote_words(text, copy);
    json_t *json = json_loadb(copy, len, flags, error);
    free(copy);
    return json;
}

weft_err wefti_model_json_parse(const char *path, const char *what, struct weft_str text,
                                size_t flags, json_t **json_out, struct weft_errmsg *why) {
    json_error_t error;
    WEFT_ASSERT(text.data || text.len == 0);
    *json_out = json_loadb(text.data, text.len, flags, &error);
    if (!*json_out) *json_out = load_with_words(text, flags, &error);
    if (*json_out) return WEFT_OK;
    if (json_error_code(&error) == json_error_out_of_memory) {
        return weft_err_set(why, WEFT_E_NOMEM, "%s: out of memory for %s", path, what);
    }
    struct wefti_model_shown shown = wefti_model_show(error.text, strlen(error.text));
    return weft_err_set(why, WEFT_E_PROTO, "%s: %s is not valid JSON: %s (at byte %d)", path, what,
                        shown.text, error.position);
}

static weft_err read_section(struct wefti_model_file *file, const char *name, size_t bytes_max,
                             char **text_out, size_t *len_out, struct weft_errmsg *why) {
    struct wefti_model_packed_view view;
    struct weft_str section;
    WEFT_ASSERT(bytes_max < SIZE_MAX); /* a zero follows the text */
    weft_err err = wefti_model_packed_parse(file, &view, why);
    if (err) return err;
    if (!wefti_model_packed_find(&view, name, &section))
        return weft_err_set(why, WEFT_E_NOTFOUND, "%s: was packed without a %s", file->path, name);
    if (section.len > bytes_max)
        return weft_err_set(why, WEFT_E_TOOBIG, "%s/%s: has %zu bytes; the limit is %zu",
                            file->path, name, section.len, bytes_max);
    char *text = malloc(section.len + 1);
    if (!text)
        return weft_err_set(why, WEFT_E_NOMEM, "%s/%s: no memory for its %zu bytes", file->path,
                            name, section.len);
    memcpy(text, section.data, section.len);
    text[section.len] = 0;
    *text_out = text;
    *len_out = section.len;
    return WEFT_OK;
}

weft_err weft_model_read_in(const char *dir, const char *name, size_t bytes_max, char **text_out,
                            size_t *len_out, struct weft_errmsg *why) {
    char path[PATH_BYTES_MAX];
    struct wefti_model_file file;
    struct stat st;
    WEFT_ASSERT(name[0] != '/' && !strstr(name, ".."));
    *text_out = NULL;
    *len_out = 0;
    if (stat(dir, &st) == 0 && S_ISREG(st.st_mode)) {
        weft_err err = wefti_model_file_map(dir, UINT64_MAX, &file, why);
        if (err) return err;
        err = read_section(&file, name, bytes_max, text_out, len_out, why);
        wefti_model_file_close(&file);
        return err;
    }
    int n = snprintf(path, sizeof path, "%s/%s", dir, name);
    if (n < 0 || (size_t)n >= sizeof path) {
        return weft_err_set(why, WEFT_E_TOOBIG, "the path of %s is over %zu bytes", name,
                            sizeof path - 1);
    }
    return weft_file_read(path, WEFT_FILE_REGULAR, bytes_max, text_out, len_out, why);
}

weft_err weft_model_json(const char *dir, const char *name, size_t bytes_max, json_t **root_out,
                         struct weft_errmsg *why) {
    char path[PATH_BYTES_MAX], *text = NULL;
    json_t *root = NULL;
    size_t len;
    *root_out = NULL;
    weft_err err = weft_model_read_in(dir, name, bytes_max, &text, &len, why);
    if (err) goto cleanup;
    (void)snprintf(path, sizeof path, "%s/%s", dir, name); /* for messages; it fitted */
    /* A vocabulary may have an entry for U+0000. */
    err = wefti_model_json_parse(path, "the file", (struct weft_str){text, len},
                                 JSON_ALLOW_NUL | JSON_DECODE_INT_AS_REAL, &root, why);
    if (err) goto cleanup;
    if (!json_is_object(root)) {
        err = weft_err_set(why, WEFT_E_PROTO, "%s: is not a JSON object", path);
        goto cleanup;
    }
    *root_out = root;
    root = NULL;
cleanup:
    json_decref(root);
    free(text);
    return err;
}

bool weft_json_u64(const json_t *value, uint64_t *out) {
    *out = 0;
    if (!json_is_number(value)) return false;
    double number = json_number_value(value);
    if (!(number >= 0 && number < 0x1p53) || number != floor(number)) return false;
    *out = (uint64_t)number;
    return true;
}
