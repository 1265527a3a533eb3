/* The API keys of --api-key and --api-key-file. */
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/file.h"
#include "server.h"

#define KEY_FILE_BYTES_MAX (1u << 16)

/* A file without any key is refused: it would let everybody in. */
static weft_err load_key_file(const char *path, enum weft_file_kind kind,
                              struct weft_api_keys *keys, struct weft_errmsg *why) {
    char *text;
    size_t len;
    struct weft_errmsg detail = {""};
    uint32_t n_before = keys->n;
    weft_err err = weft_file_read(path, kind, KEY_FILE_BYTES_MAX, &text, &len, &detail);
    if (err) return weft_err_set(why, err, "--api-key-file: %s", detail.text);
    if (strlen(text) != len)
        err = weft_err_set(&detail, WEFT_E_INVAL, "it is no text: it holds a NUL");
    else
        err = weft_api_keys_add_lines(keys, text, &detail);
    if (err)
        (void)weft_err_set(why, err, "--api-key-file: \"%s\", %s", path, detail.text);
    else if (keys->n == n_before)
        err = weft_err_set(why, WEFT_E_INVAL, "--api-key-file: \"%s\" holds no key", path);
    free(text);
    return err;
}

weft_err wefti_load_keys(struct server *server, enum weft_file_kind kind, struct weft_errmsg *why) {
    const struct weft_config *config = &server->config;
    struct weft_api_keys keys = {0};
    struct weft_errmsg detail = {""};
    weft_err err = WEFT_OK;
    if (config->api_key) {
        err = weft_api_keys_add(&keys, config->api_key, strlen(config->api_key), &detail);
        if (err) (void)weft_err_set(why, err, "--api-key: %s", detail.text);
    }
    if (!err && config->api_key_file) err = load_key_file(config->api_key_file, kind, &keys, why);
    if (!err)
        weft_api_set_keys(&server->api, &keys);
    else
        weft_api_keys_fini(&keys);
    return err;
}
