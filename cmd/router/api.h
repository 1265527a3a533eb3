/* api — the routes: which path and method means what, who may ask, and the short answers. */
#ifndef WEFT_ROUTER_API_H
#define WEFT_ROUTER_API_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct http;
struct route;
struct server;

/* Once the head is parsed: finds the route, refuses what needs no body to be refused. */
void wefti_api_check(struct http *http);

/* Once the request is whole: answers it, or attaches a call that will. */
void wefti_api_handle(struct http *http);

/* The methods of a route, for an Allow header. */
const char *wefti_route_allow(const struct route *route);

/* JSON of GET /v1/models, of the "health" and of the "stats" methods of MessagePack-RPC. */
void wefti_api_models(const struct server *server, struct weft_buf *out);
void wefti_api_health(const struct server *server, struct weft_buf *out);
void wefti_api_stats(const struct server *server, struct weft_buf *out);

/* The page at "/". */
void wefti_page_render(const struct server *server, struct weft_buf *out);

#endif
