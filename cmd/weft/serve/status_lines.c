/* The lines on children's status pipes (common/status.h lists them). */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/parse.h"
#include "hosts.h"
#include "supervisor.h"

/* The router's "ready URL RPC_PORT IDENTITY": from now on the ports are known, and a restarted
 * router gets the same ones even where the command line asked for any. It must also find the same
 * model: the workers have its weights, whatever lies there by then. */
static void router_ready(struct supervisor *sup, char *text) {
    char *identity = NULL;
    (void)strtok_r(text, " ", &identity);
    const char *port_text = strtok_r(NULL, " ", &identity);
    if (port_text) {
        uint64_t rpc_port = 0;
        if (!weft_parse_u64(port_text, 65535, &rpc_port) && rpc_port)
            sup->config.rpc_port = (uint32_t)rpc_port;
    }
    char *colon = strrchr(text, ':');
    uint64_t port = 0;
    if (colon && !weft_parse_u64(colon + 1, 65535, &port) && port)
        sup->config.port = (uint32_t)port;
    sup->config.replace = false; /* it has the ports */
    (void)snprintf(sup->ready_on, sizeof sup->ready_on, "%.*s", (int)sizeof sup->ready_on - 1,
                   text);
    if (sup->identity[0] || !identity) return;
    (void)snprintf(sup->identity, sizeof sup->identity, "%.*s", (int)sizeof sup->identity - 1,
                   identity);
    sup->config.model_identity = sup->identity;
}

/* True once the router and every worker have been ready: impossible settings have shown by then. */
static void announce(struct supervisor *sup) {
    if (sup->announced || !sup->ready_on[0] || !weft_restart_has_begun(&sup->restart)) return;
    sup->announced = true;
    if (sup->offline.is_on) return; /* nobody can ask it */
    weft_say(WEFT_LOG_INFO, "ready on %s", sup->ready_on);
    weft_notify_say(&sup->notify, "READY=1\nSTATUS=serving");
    char hosts[WEFT_HOSTS_MAX][INET6_ADDRSTRLEN + 2];
    uint32_t n = weft_hosts_of_all(sup->config.host, hosts);
    for (uint32_t i = 0; i < n; i++)
        weft_say(WEFT_LOG_INFO, "and on http://%s:%u", hosts[i], sup->config.port);
}

/* A worker's "ready KV_BYTES". */
static void worker_ready(struct child *child, const char *text) {
    uint64_t bytes = 0;
    if (child->kv_memory == 0 && !weft_parse_u64(text, UINT64_MAX, &bytes))
        child->kv_memory = bytes;
}

/* The rest of a line after its first word, if that is `word`; else NULL. */
static char *text_after(char *line, const char *word) {
    size_t n = strlen(word);
    if (strncmp(line, word, n) != 0 || (line[n] != ' ' && line[n] != '\0')) return NULL;
    return line + n + (line[n] == ' ');
}

static void keep(const char *text, char *out, size_t out_bytes) {
    size_t n = strnlen(text, out_bytes - 1);
    memcpy(out, text, n);
    out[n] = '\0';
}

static void take_line(struct supervisor *sup, uint32_t child_idx, char *line) {
    struct child *child = &sup->children[child_idx];
    char *text;
    if ((text = text_after(line, "failed"))) {
        keep(text, child->last_words, sizeof child->last_words);
    } else if ((text = text_after(line, "needs"))) {
        keep(text, child->needs, sizeof child->needs);
    } else if ((text = text_after(line, "ready"))) {
        weft_restart_ready(&sup->restart, child_idx, weft_now_ms());
        if (child_idx == ROUTER && *text) router_ready(sup, text);
        if (child_idx >= FIRST_WORKER && *text) worker_ready(child, text);
        announce(sup);
    } else if (child_idx == ROUTER && text_after(line, "replaced")) {
        sup->was_replaced = true;
    } else if (child_idx == ROUTER && (text = text_after(line, "batch"))) {
        weft_offline_take(&sup->offline, text, weft_now_ms());
    } else if (text_after(line, "worked")) {
        weft_restart_worked(&sup->restart, child_idx);
    } else if (child_idx == SCHEDULER && text_after(line, "explained")) {
        weft_restart_explained(&sup->restart);
    } /* "alive" is news by having come */
}

void wefti_status_read(struct supervisor *sup, uint32_t child_idx) {
    struct child *child = &sup->children[child_idx];
    ssize_t n = read(child->status_fd, child->line + child->line_len,
                     sizeof child->line - 1 - child->line_len);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) {
        (void)close(child->status_fd);
        child->status_fd = -1;
        return;
    }
    child->heard_at_ms = weft_now_ms();
    child->line_len += (size_t)n;
    child->line[child->line_len] = '\0';
    for (char *end; (end = strchr(child->line, '\n'));) {
        *end = '\0';
        take_line(sup, child_idx, child->line);
        size_t used = (size_t)(end + 1 - child->line);
        memmove(child->line, child->line + used, child->line_len - used + 1);
        child->line_len -= used;
    }
    if (child->line_len == sizeof child->line - 1) child->line_len = 0; /* not one of ours */
}
