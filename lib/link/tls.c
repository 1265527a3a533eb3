#include "tls.h"

#include <mbedtls/pk.h>
#include <mbedtls/x509_crt.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

#define PEM_BYTES_MAX ((size_t)1 << 20)

static weft_err read_pem(const char *flag, const char *path, char **text_out, size_t *len_out,
                         struct weft_errmsg *why) {
    struct weft_errmsg detail = {""};
    if (!path || !*path)
        return weft_err_set(why, WEFT_E_INVAL,
                            "tls+tcp:// needs --link-cert, --link-key and --link-ca: there is no "
                            "--%s",
                            flag);
    weft_err err = weft_file_read(path, WEFT_FILE_ANY, PEM_BYTES_MAX, text_out, len_out, &detail);
    if (!err) return WEFT_OK;
    return weft_err_set(why, err == WEFT_E_NOMEM ? err : WEFT_E_INVAL, "--%s: %s", flag,
                        detail.text);
}

static weft_err refuse(struct weft_errmsg *why, int rv, const char *what) {
    return weft_err_set(why, rv == NNG_ENOMEM ? WEFT_E_NOMEM : WEFT_E_INVAL, "%s: %s", what,
                        nng_strerror(rv));
}

/* nng takes a key that is another certificate's, and no handshake would succeed. Both are terminated
 * and known to be PEM; their lengths count without the terminator. */
static weft_err check_pair(const char *cert, size_t cert_len, const char *key, size_t key_len,
                           struct weft_errmsg *why) {
    mbedtls_x509_crt own;
    mbedtls_pk_context pk;
    mbedtls_x509_crt_init(&own);
    mbedtls_pk_init(&pk);
    int rv = mbedtls_x509_crt_parse(&own, (const unsigned char *)cert, cert_len + 1);
    if (rv == 0) rv = mbedtls_pk_parse_key(&pk, (const unsigned char *)key, key_len + 1, NULL, 0);
    if (rv == 0) rv = mbedtls_pk_check_pair(&own.pk, &pk);
    mbedtls_pk_free(&pk);
    mbedtls_x509_crt_free(&own);
    if (rv == 0) return WEFT_OK;
    return weft_err_set(why, WEFT_E_INVAL, "--link-key is not the key of --link-cert");
}

static weft_err fill(nng_tls_config *config, const struct weft_link_options *options,
                     struct weft_errmsg *why) {
    char *ca = NULL, *cert = NULL, *key = NULL;
    size_t ca_len = 0, cert_len = 0, key_len = 0;
    int rv = 0;
    weft_err err = read_pem("link-ca", options->ca, &ca, &ca_len, why);
    if (!err) err = read_pem("link-cert", options->cert, &cert, &cert_len, why);
    if (!err) err = read_pem("link-key", options->key, &key, &key_len, why);
    if (err) goto cleanup;
    rv = nng_tls_config_auth_mode(config, NNG_TLS_AUTH_MODE_REQUIRED);
    if (rv == 0) rv = nng_tls_config_version(config, NNG_TLS_1_2, NNG_TLS_1_3);
    if (rv != 0) {
        err = refuse(why, rv, "cannot set up TLS");
        goto cleanup;
    }
    rv = nng_tls_config_ca_chain(config, ca, NULL);
    if (rv != 0) {
        err = refuse(why, rv, "--link-ca holds no certificates in PEM");
        goto cleanup;
    }
    rv = nng_tls_config_own_cert(config, cert, key, NULL);
    if (rv != 0)
        err = refuse(why, rv, "--link-cert and --link-key hold no certificate and its key in PEM");
    else
        err = check_pair(cert, cert_len, key, key_len, why);
cleanup:
    if (key) explicit_bzero(key, key_len);
    free(ca);
    free(cert);
    free(key);
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
