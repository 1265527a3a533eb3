/* address — what a link's URL says; private to lib/link. */
#ifndef WEFT_LINK_ADDRESS_H
#define WEFT_LINK_ADDRESS_H

#include <stdbool.h>

#include "base/err.h"

enum wefti_link_scheme {
    WEFTI_LINK_ABSTRACT, /* abstract://NAME */
    WEFTI_LINK_IPC,      /* ipc://PATH */
    WEFTI_LINK_TCP,      /* tcp://HOST:PORT */
    WEFTI_LINK_TLS,      /* tls+tcp://HOST:PORT */
};

struct wefti_link_address {
    enum wefti_link_scheme scheme;
    const char *rest;  /* after the scheme; part of the URL */
    bool is_this_host; /* peers can only be on this host */
};

/* INVAL: another scheme, or an impossible address. */
WEFT_MUST_CHECK weft_err wefti_link_address_parse(const char *url,
                                                  struct wefti_link_address *address_out,
                                                  struct weft_errmsg *why);

#endif
