#include "tls.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"

#define PEM_BYTES_MAX ((size_t)1 << 20)

/* As a string. */
static weft_err read_pem(const char *flag, const char *path, struct weft_buf *out,
                         struct weft_errmsg *why) {
    char piece[4096];
    if (!path || !*path)
        return weft_err_set(why, WEFT_E_INVAL,
                            "tls+tcp:// needs --link-cert, --link-key and --link-ca: there is no "
                            "--%s",
                            flag);
    FILE *file = fopen(path, "re");
    if (!file)
        return weft_err_errno(why, errno, "--%s: cannot open \"%s\"", flag, path) == WEFT_E_NOMEM
                   ? WEFT_E_NOMEM
                   : WEFT_E_INVAL;
    weft_buf_init(out, PEM_BYTES_MAX);
    for (size_t n; !out->failed && (n = fread(piece, 1, sizeof piece, file)) > 0;)
        weft_buf_add(out, piece, n);
    bool failed = ferror(file);
    (void)fclose(file);
    weft_buf_add(out, "", 1);
    if (!out->failed && !failed) return WEFT_OK;
    return weft_err_set(why, WEFT_E_INVAL, "--%s: cannot read \"%s\", or it is over 1 MiB", flag,
                        path);
}

static weft_err refuse(struct weft_errmsg *why, int rv, const char *what) {
    return weft_err_set(why, rv == NNG_ENOMEM ? WEFT_E_NOMEM : WEFT_E_INVAL, "%s: %s", what,
                        nng_strerror(rv));
}

static weft_err fill(nng_tls_config *config, const struct weft_link_options *options,
                     struct weft_errmsg *why) {
    struct weft_buf ca = {0}, cert = {0}, key = {0};
    int rv = 0;
    weft_err err = read_pem("link-ca", options->ca, &ca, why);
    if (!err) err = read_pem("link-cert", options->cert, &cert, why);
    if (!err) err = read_pem("link-key", options->key, &key, why);
    if (err) goto cleanup;
    rv = nng_tls_config_auth_mode(config, NNG_TLS_AUTH_MODE_REQUIRED);
    if (rv == 0) rv = nng_tls_config_version(config, NNG_TLS_1_2, NNG_TLS_1_3);
    if (rv != 0) {
        err = refuse(why, rv, "cannot set up TLS");
        goto cleanup;
    }
    rv = nng_tls_config_ca_chain(config, (const char *)ca.data, NULL);
    if (rv != 0) {
        err = refuse(why, rv, "--link-ca holds no certificates in PEM");
        goto cleanup;
    }
    rv = nng_tls_config_own_cert(config, (const char *)cert.data, (const char *)key.data, NULL);
    if (rv != 0)
        err = refuse(why, rv, "--link-cert and --link-key hold no certificate and its key in PEM");
cleanup:
    if (key.data) explicit_bzero(key.data, key.len);
    weft_buf_fini(&ca);
    weft_buf_fini(&cert);
    weft_buf_fini(&key);
    return err;
}

weft_err wefti_link_tls_config(bool dials, const struct weft_link_options *options,
                               nng_tls_config **config_out, struct weft_errmsg *why) {
    *config_out = NULL;
    static const struct weft_link_options none;
    nng_tls_config *config = NULL;
    int rv = nng_tls_config_alloc(&config, dials ? NNG_TLS_MODE_CLIENT : NNG_TLS_MODE_SERVER);
    if (rv == NNG_ENOTSUP)
        return weft_err_set(why, WEFT_E_UNSUPPORTED, "this machine's nng was built without TLS");
    if (rv != 0) return refuse(why, rv, "cannot set up TLS");
    weft_err err = fill(config, options ? options : &none, why);
    if (err) {
        nng_tls_config_free(config);
        return err;
    }
    *config_out = config;
    return WEFT_OK;
}
