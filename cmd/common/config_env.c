/* WEFT_* variables that are no settings: misspelt ones, and those of others. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "common/nearest.h"
#include "config_internal.h"

/* Read elsewhere: by the kernels, by configuration files' readers, by tests and by builds. */
static const char *const others[] = {
    "WEFT_CONFIG",     "WEFT_ISA",      "WEFT_SOURCE_DIR", "WEFT_BIN_DIR",     "WEFT_SHARED_DIR",
    "WEFT_SANITIZED",  "WEFT_OFFLINE",  "WEFT_STEPS",      "WEFT_PROTO_PRINT", "WEFT_FUZZ_SEEDS",
    "WEFT_PAGE_SHOTS", "WEFT_SANITIZE", "WEFT_GGUF_DIR",   "WEFT_TEST_FILTER", NULL};

bool wefti_config_is_service_url(const char *text) {
    return !strncmp(text, "tcp://", 6) || !strncmp(text, "udp://", 6) ||
           !strncmp(text, "sctp://", 7);
}

/* Whether Kubernetes writes variables of this name into every pod beside a Service called weft,
 * weft-canary or the like: WEFT_SERVICE_HOST, WEFT_SERVICE_PORT, WEFT_SERVICE_PORT_HTTP,
 * WEFT_PORT_8080_TCP and WEFT_PORT_8080_TCP_ADDR. (WEFT_PORT is told by its value.) */
static bool is_of_service(const char *name, size_t len) {
    static const char host[] = "_SERVICE_HOST", port[] = "_SERVICE_PORT";
    char text[256];
    if (len >= sizeof text) return false;
    memcpy(text, name, len);
    text[len] = '\0';
    if (len > strlen(host) && !strcmp(text + len - strlen(host), host)) return true;
    const char *at = strstr(text, port);
    if (at && (!at[strlen(port)] || at[strlen(port)] == '_')) return true;
    for (at = text; (at = strstr(at, "_PORT_")); at++) {
        const char *rest = at + strlen("_PORT_");
        size_t n_digits = strspn(rest, "0123456789");
        rest += n_digits;
        if (n_digits > 0 &&
            (!strncmp(rest, "_TCP", 4) || !strncmp(rest, "_UDP", 4) || !strncmp(rest, "_SCTP", 5)))
            return true;
    }
    return false;
}

static bool is_variable(const char *of, const char *name, size_t len) {
    char known[WEFTI_CONFIG_NAME_BYTES];
    wefti_config_variable(of, known);
    return strlen(known) == len && !memcmp(known, name, len);
}

static bool is_known(const char *name, size_t len) {
    for (const char *const *other = others; *other; other++) {
        if (strlen(*other) == len && !memcmp(*other, name, len)) return true;
    }
    if (!strncmp(name, "WEFT_TEST_", 10)) return true;
    for (size_t i = 0; i < wefti_config_n_settings; i++) {
        if (!wefti_config_settings[i].name) continue;
        const char *former = wefti_config_former(&wefti_config_settings[i]);
        if (is_variable(wefti_config_settings[i].name, name, len)) return true;
        if (former && is_variable(former, name, len)) return true;
    }
    return false;
}

/* The value stays out of the log: it may be a key. */
static void warn_of(const char *name, size_t len) {
    struct weft_nearest nearest;
    weft_nearest_init(&nearest, (struct weft_str){name + 5, len - 5});
    for (size_t i = 0; i < wefti_config_n_settings; i++) {
        char known[WEFTI_CONFIG_NAME_BYTES];
        if (!wefti_config_settings[i].name || wefti_config_settings[i].kind == WEFTI_CONFIG_FD)
            continue;
        wefti_config_variable(wefti_config_settings[i].name, known);
        weft_nearest_offer(&nearest, known + 5);
    }
    weft_nearest_offer(&nearest, "CONFIG");
    weft_nearest_offer(&nearest, "ISA");
    const char *meant = weft_nearest_name(&nearest);
    int n = len < 128 ? (int)len : 128;
    if (meant)
        weft_warn("nobody reads the variable %.*s; did you mean WEFT_%s?", n, name, meant);
    else
        weft_warn("nobody reads the variable %.*s", n, name);
}

void weft_config_check_environment(void) {
    for (char **var = environ; var && *var; var++) {
        size_t len = strcspn(*var, "=");
        if (len <= 5 || strncmp(*var, "WEFT_", 5) != 0) continue;
        const char *value = (*var)[len] ? *var + len + 1 : "";
        if (is_known(*var, len) || is_of_service(*var, len) || wefti_config_is_service_url(value))
            continue;
        warn_of(*var, len);
    }
}
