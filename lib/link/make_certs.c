/* By mbedTLS, since nng's TLS uses it: it reads what it wrote, and is loaded anyway. */
#include "make_certs.h"

#include <errno.h>
#include <fcntl.h>
#include <mbedtls/ctr_drbg.h>
#include <mbedtls/entropy.h>
#include <mbedtls/error.h>
#include <mbedtls/x509_crt.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"

#define PEM_BYTES_MAX 4096
#define ISSUER "CN=weft authority of one run"

struct maker {
    mbedtls_entropy_context entropy;
    mbedtls_ctr_drbg_context random;
    mbedtls_pk_context ca_key;
    struct weft_errmsg *why;
};

static weft_err fail(const struct maker *maker, int code) {
    char text[128];
    mbedtls_strerror(code, text, sizeof text);
    return weft_err_set(maker->why, WEFT_E_IO, "cannot make certificates for links: %s", text);
}

static weft_err new_key(struct maker *maker, mbedtls_pk_context *key) {
    int rv = mbedtls_pk_setup(key, mbedtls_pk_info_from_type(MBEDTLS_PK_ECKEY));
    if (rv == 0)
        rv = mbedtls_ecp_gen_key(MBEDTLS_ECP_DP_SECP256R1, mbedtls_pk_ec(*key),
                                 mbedtls_ctr_drbg_random, &maker->random);
    return rv == 0 ? WEFT_OK : fail(maker, rv);
}

/* Writes a certificate signed by the authority; the authority's own is self-signed and marked as a
 * CA. */
static weft_err sign(struct maker *maker, const char *subject, mbedtls_pk_context *key,
                     char pem_out[PEM_BYTES_MAX]) {
    unsigned char serial[16];
    bool is_ca = key == &maker->ca_key;
    mbedtls_x509write_cert cert;
    mbedtls_mpi number;
    mbedtls_x509write_crt_init(&cert);
    mbedtls_mpi_init(&number);
    mbedtls_x509write_crt_set_version(&cert, MBEDTLS_X509_CRT_VERSION_3);
    mbedtls_x509write_crt_set_md_alg(&cert, MBEDTLS_MD_SHA256);
    mbedtls_x509write_crt_set_subject_key(&cert, key);
    mbedtls_x509write_crt_set_issuer_key(&cert, &maker->ca_key);
    int rv = mbedtls_ctr_drbg_random(&maker->random, serial, sizeof serial);
    serial[0] = (serial[0] & 0x7f) | 0x01; /* positive, without a leading zero */
    if (rv == 0) rv = mbedtls_mpi_read_binary(&number, serial, sizeof serial);
    if (rv == 0) rv = mbedtls_x509write_crt_set_serial(&cert, &number);
    if (rv == 0) rv = mbedtls_x509write_crt_set_subject_name(&cert, subject);
    if (rv == 0) rv = mbedtls_x509write_crt_set_issuer_name(&cert, ISSUER);
    /* Valid however wrong the clock is: certificates end with the run. */
    if (rv == 0) rv = mbedtls_x509write_crt_set_validity(&cert, "20000101000000", "99991231235959");
    if (rv == 0) rv = mbedtls_x509write_crt_set_basic_constraints(&cert, is_ca, is_ca ? 0 : -1);
    if (rv == 0)
        rv = mbedtls_x509write_crt_pem(&cert, (unsigned char *)pem_out, PEM_BYTES_MAX,
                                       mbedtls_ctr_drbg_random, &maker->random);
    mbedtls_mpi_free(&number);
    mbedtls_x509write_crt_free(&cert);
    return rv == 0 ? WEFT_OK : fail(maker, rv);
}

static weft_err keep(const struct maker *maker, const char *name, const char *text, int *fd_out) {
    const unsigned seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
    size_t len = strlen(text);
    *fd_out = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*fd_out >= 0 && write(*fd_out, text, len) == (ssize_t)len &&
        fcntl(*fd_out, F_ADD_SEALS, seals) == 0)
        return WEFT_OK;
    return weft_err_errno(maker->why, errno, "cannot keep certificates for links in memory");
}

static weft_err make_one(struct maker *maker, const char *name, struct weft_link_cert *out) {
    char subject[128], pem[PEM_BYTES_MAX];
    mbedtls_pk_context key;
    mbedtls_pk_init(&key);
    (void)snprintf(subject, sizeof subject, "CN=%s", name);
    weft_err err = new_key(maker, &key);
    if (!err) err = sign(maker, subject, &key, pem);
    if (!err) err = keep(maker, "weft-link-cert", pem, &out->cert_fd);
    if (err) goto cleanup;
    int rv = mbedtls_pk_write_key_pem(&key, (unsigned char *)pem, sizeof pem);
    err = rv == 0 ? keep(maker, "weft-link-key", pem, &out->key_fd) : fail(maker, rv);
    explicit_bzero(pem, sizeof pem);
cleanup:
    mbedtls_pk_free(&key);
    return err;
}

static void drop(int *fd) {
    if (*fd >= 0) (void)close(*fd);
    *fd = -1;
}

weft_err weft_link_certs_make(uint32_t n, const char *const *names, int *ca_fd_out,
                              struct weft_link_cert *certs, struct weft_errmsg *why) {
    static const char purpose[] = "weft links";
    char pem[PEM_BYTES_MAX];
    struct maker maker = {.why = why};
    WEFT_ASSERT(n > 0);
    *ca_fd_out = -1;
    for (uint32_t i = 0; i < n; i++)
        certs[i] = (struct weft_link_cert){-1, -1};
    mbedtls_entropy_init(&maker.entropy);
    mbedtls_ctr_drbg_init(&maker.random);
    mbedtls_pk_init(&maker.ca_key);
    int rv = mbedtls_ctr_drbg_seed(&maker.random, mbedtls_entropy_func, &maker.entropy,
                                   (const unsigned char *)purpose, sizeof purpose - 1);
    weft_err err = rv == 0 ? new_key(&maker, &maker.ca_key) : fail(&maker, rv);
    if (!err) err = sign(&maker, ISSUER, &maker.ca_key, pem);
    if (!err) err = keep(&maker, "weft-link-ca", pem, ca_fd_out);
    for (uint32_t i = 0; !err && i < n; i++)
        err = make_one(&maker, names[i], &certs[i]);
    mbedtls_pk_free(&maker.ca_key);
    mbedtls_ctr_drbg_free(&maker.random);
    mbedtls_entropy_free(&maker.entropy);
    if (!err) return WEFT_OK;
    drop(ca_fd_out);
    for (uint32_t i = 0; i < n; i++) {
        drop(&certs[i].cert_fd);
        drop(&certs[i].key_fd);
    }
    return err;
}
