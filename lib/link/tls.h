/* tls — what nng needs for tls+tcp://; private to lib/link. */
#ifndef WEFT_LINK_TLS_H
#define WEFT_LINK_TLS_H

#include <nng/nng.h>
#include <nng/supplemental/tls/tls.h>
#include <stdbool.h>

#include "base/err.h"
#include "link.h"

/* TLS 1.2, or 1.3 where nng has it (1.5.2 has not), with certificates on both sides. The authority
 * alone decides who is one of us: names in certificates are not looked at, so it must be an
 * authority that signs for nobody else. The caller frees it. INVAL: a file is missing, or is not
 * what it should be. */
WEFT_MUST_CHECK weft_err wefti_link_tls_config(bool dials, const struct weft_link_options *options,
                                               nng_tls_config **config_out,
                                               struct weft_errmsg *why);

#endif
