/* Messages to routers and workers, for all files of the actor. */
#include "actor_internal.h"
#include "base/log.h"

bool wefti_group_send(struct wefti_actor *a, struct wefti_group *g, const struct weft_msg *msg) {
    weft_buf_clear(&a->out);
    weft_proto_encode(msg, &a->out);
    if (a->out.failed) {
        weft_error("a %s does not fit a message", weft_proto_type_name(msg->type));
        weft_link_reset(g->link, 0);
        return false;
    }
    weft_err err = weft_link_send(g->link, 0, a->out.data, a->out.len);
    if (err) weft_warn("%s not sent: %s", weft_proto_type_name(msg->type), weft_err_text(err));
    return !err;
}

void wefti_router_release(struct wefti_actor *a, uint32_t peer) {
    if (!a->routers[peer].is_held) return;
    weft_link_cork(a->hub, peer, false);
    a->routers[peer].is_held = false;
    if (--a->n_held == 0) a->held_until_us = 0;
}

void wefti_router_send(struct wefti_actor *a, uint32_t peer, const struct weft_msg *msg) {
    weft_buf_clear(&a->out);
    weft_proto_encode(msg, &a->out);
    if (a->out.failed) {
        weft_error("router %u: a %s does not fit a message", peer, weft_proto_type_name(msg->type));
        weft_link_reset(a->hub, peer);
        return;
    }
    weft_err err = weft_link_send(a->hub, peer, a->out.data, a->out.len);
    if (err) {
        weft_debug("router %u: %s not sent: %s", peer, weft_proto_type_name(msg->type),
                   weft_err_text(err));
    }
    if (msg->type != WEFT_MSG_EVENTS) wefti_router_release(a, peer);
}
