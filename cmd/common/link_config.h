/* link_config — the settings of links as lib/link takes them. */
#ifndef WEFT_CMD_LINK_CONFIG_H
#define WEFT_CMD_LINK_CONFIG_H

#include "common/config.h"
#include "link/link.h"

/* Borrows from `config`. */
struct weft_link_options weft_link_config(const struct weft_config *config);

#endif
