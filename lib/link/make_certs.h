/* make_certs — an authority for one run, and certificates that it signs: for tls+tcp:// links without
 * certificates of the operator.
 *
 * Everything is in sealed memory files, so nothing is on disk and nothing outlives the holders of
 * the descriptors; "/proc/self/fd/N" is a path to one. The authority's private key is destroyed
 * when the call returns: it never signs for anybody else.
 */
#ifndef WEFT_LINK_MAKE_CERTS_H
#define WEFT_LINK_MAKE_CERTS_H

#include <stdint.h>

#include "base/err.h"

struct weft_link_cert {
    int cert_fd, key_fd; /* close-on-exec; -1: none */
};

/* Makes a certificate for each of `n` names (EC P-256, never expires). The descriptors are the
 * caller's, all of them or none. IO, NOMEM. */
WEFT_MUST_CHECK weft_err weft_link_certs_make(uint32_t n, const char *const *names, int *ca_fd_out,
                                              struct weft_link_cert *certs_out,
                                              struct weft_errmsg *why);

#endif
