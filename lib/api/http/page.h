/* page — the page at "/", for people: files of http/page/, which the build turns into bytes
 * (page/embed.cmake), and what they ask of this server. */
#ifndef WEFT_API_HTTP_PAGE_H
#define WEFT_API_HTTP_PAGE_H

#include <stddef.h>

#include "api/http.h"
#include "codec/writer.h"

/* A script that is not the page's own file does not run, nothing is fetched from elsewhere, and
 * the page is shown in no frame. It changes with the program: browsers ask again each time. */
#define WEFTI_API_PAGE_HEADERS                                                                     \
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; "           \
    "connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; "              \
    "frame-ancestors 'none'\r\n"                                                                   \
    "X-Content-Type-Options: nosniff\r\n"                                                          \
    "Referrer-Policy: no-referrer\r\n"                                                             \
    "Cache-Control: no-cache\r\n"

struct wefti_api_page_file {
    const char *name, *type; /* name: NULL ends the list */
    const unsigned char *bytes;
    size_t n_bytes;
};
extern const struct wefti_api_page_file wefti_api_page_files[];

/* The file of a path: "/", or "/page/NAME". NULL: there is none. */
const struct wefti_api_page_file *wefti_api_find_page_file(const struct weft_api_span *path);

/* {"model", "has_chat_template", ..., "sampling": [...]}: what the page needs to
 * know before it asks anything; no secrets, since anybody may read it. */
void wefti_api_write_page_settings(const struct weft_api_state *api, struct weft_writer *w);

#endif
