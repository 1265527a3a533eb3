#include "common/link_config.h"

struct weft_link_options weft_link_config(const struct weft_config *config) {
    return (struct weft_link_options){.cert = config->link_cert,
                                      .key = config->link_key,
                                      .ca = config->link_ca,
                                      .insecure = config->insecure_links};
}
