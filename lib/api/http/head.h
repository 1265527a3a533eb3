/* head — checks of a request's head, and the routes it may take. */
#ifndef WEFT_API_HTTP_HEAD_H
#define WEFT_API_HTTP_HEAD_H

#include "api/http.h"
#include "base/str.h"

/* The path of a request's target: in "/path?query", or in "http://host/path?query" as a proxy gets
 * it, where no path means "/". Anything else stays as it is, and matches no route. */
struct weft_api_span wefti_api_http_path(const char *target, size_t len);

/* Checks one piece of a head; pure. Returns how many bytes belong to it; *done_out: they complete
 * it. *ok_out false: a bare CR or LF, a NUL, a line folded into the next, or one without a name. */
size_t wefti_api_http_scan(struct weft_api_head_scan *scan, const char *bytes, size_t n,
                           bool *done_out, bool *ok_out);

/* After the head is parsed: finds the route, and refuses what can be refused without the body. */
void wefti_api_http_check(struct weft_api_http *http);

/* Reads the headers that say how, and for whom, the request is to be served: into `asks`, or the
 * refusal. */
void wefti_api_http_read_wishes(struct weft_api_http *http);

/* Of a stored route: what the request wants of files and batches, or the refusal. False: nothing that there is. */
bool wefti_api_http_read_ask(struct weft_api_http *http);

/* The value of a field of the query: "" where there is a name alone; NULL data: it has none. False: it has several, and
 * nobody can tell which one is meant. `once` refuses such a request. */
bool wefti_api_http_query(const struct weft_api_http *http, const char *name,
                          struct weft_str *value_out);
bool wefti_api_http_query_once(struct weft_api_http *http, const char *name,
                               struct weft_str *value_out);

/* The methods of a route, for an Allow header. */
const char *wefti_api_route_allow(const struct weft_api_route *route);

#endif
