/* page — the page at "/", for people. */
#ifndef WEFT_API_HTTP_PAGE_H
#define WEFT_API_HTTP_PAGE_H

#include "base/buf.h"

void wefti_api_write_page(const char *model_name, struct weft_buf *out);

#endif
