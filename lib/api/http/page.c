#include "http/page.h"

#include <string.h>

#include "api/api.h"
#include "base/sampling.h"
#include "params/params.h"

#define FOLDER "/page/"

const struct wefti_api_page_file *wefti_api_find_page_file(const struct weft_api_span *path) {
    const char *name = "index.html";
    size_t len = strlen(name), prefix = strlen(FOLDER);
    if (path->len > prefix && memcmp(path->at, FOLDER, prefix) == 0) {
        name = path->at + prefix;
        len = path->len - prefix;
    }
    const struct wefti_api_page_file *file = wefti_api_page_files;
    while (file->name && !(strlen(file->name) == len && memcmp(file->name, name, len) == 0))
        file++;
    return file->name ? file : NULL;
}

static void write_number(struct weft_writer *w, const char *key, double value) {
    weft_write_key(w, key);
    weft_write_double(w, value);
}

/* The numbers that clients may set, in the order of their list, with this server's defaults. */
static void write_sampling(const struct weft_gen_defaults *defaults, struct weft_writer *w) {
    struct weft_sampling usual;
    wefti_api_params_usual_sampling(defaults, &usual);
#define IS_WHOLE_F32 false
#define IS_WHOLE_I32 true
#define IS_WHOLE_U32 true
#define WRITE(type, field, flag, value, least, most, api_least, api_most, help)                    \
    weft_write_map(w);                                                                             \
    weft_write_key(w, "name");                                                                     \
    weft_write_str(w, #field);                                                                     \
    weft_write_key(w, "is_whole");                                                                 \
    weft_write_bool(w, IS_WHOLE_##type);                                                           \
    write_number(w, "default", (double)usual.field);                                               \
    write_number(w, "least", api_least);                                                           \
    write_number(w, "most", api_most);                                                             \
    weft_write_key(w, "help");                                                                     \
    weft_write_str(w, help);                                                                       \
    weft_write_end(w);
#define PASS_OVER(...)
    weft_write_list(w);
    WEFT_SAMPLING_LIST(WRITE, PASS_OVER)
    weft_write_end(w);
#undef PASS_OVER
#undef WRITE
#undef IS_WHOLE_U32
#undef IS_WHOLE_I32
#undef IS_WHOLE_F32
}

void wefti_api_write_page_settings(const struct weft_api_state *api, struct weft_writer *w) {
    const struct weft_api_limits *limits = &api->limits;
    weft_write_map(w);
    weft_write_key(w, "model");
    weft_write_str(w, limits->model_name);
    weft_write_key(w, "version");
    weft_write_str(w, WEFT_VERSION);
    weft_write_key(w, "max_new_tokens"); /* of an answer in a chat */
    if (limits->defaults.max_new_tokens > 0)
        weft_write_int(w, limits->defaults.max_new_tokens);
    else
        weft_write_null(w);
    weft_write_key(w, "max_logprobs");
    weft_write_uint(w, limits->max_logprobs);
    weft_write_key(w, "max_stops");
    weft_write_uint(w, WEFT_STOP_STRINGS_MAX);
    weft_write_key(w, "has_chat_template");
    weft_write_bool(w, api->chat != NULL);
    weft_write_key(w, "needs_key");
    weft_write_bool(w, api->keys.n > 0);
    weft_write_key(w, "sampling");
    write_sampling(&limits->defaults, w);
    weft_write_end(w);
}
