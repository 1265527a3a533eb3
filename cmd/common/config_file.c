/* The --config file: "name = value" per line, the value in quotes or not; '#' starts a comment; names
 * as flags, '_' and '-' are one. */
#include "config_internal.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/nearest.h"

static char *trim(char *text) {
    while (isspace((unsigned char)*text))
        text++;
    size_t n = strlen(text);
    while (n && isspace((unsigned char)text[n - 1]))
        text[--n] = '\0';
    return text;
}

/* Makes *value, trimmed, what stands between its quotes, if it has some; else what stands before a
 * '#' after white space. False: a quote without its end, or with more than a comment after it. */
static bool take_quotes(char **value) {
    char *text = *value;
    if (*text == '"' || *text == '\'') {
        char *end = strchr(text + 1, *text);
        if (!end) return false;
        char *rest = trim(end + 1);
        *end = '\0';
        *value = text + 1;
        return *rest == '\0' || *rest == '#';
    }
    for (char *p = text; *p; p++) {
        if (*p != '#' || (p > text && !isspace((unsigned char)p[-1]))) continue;
        *p = '\0';
        (void)trim(text);
        break;
    }
    return true;
}

/* One copy of each text: a process may read its file many times. A list keeps hold of all of them, so
 * that a leak checker does not blame a value that an environment variable or a flag took the place
 * of. */
const char *wefti_config_keep(const char *text) {
    static struct kept {
        struct kept *next;
        char text[];
    } * all;
    for (const struct kept *kept = all; kept; kept = kept->next) {
        if (strcmp(kept->text, text) == 0) return kept->text;
    }
    size_t n = strlen(text) + 1;
    struct kept *kept = malloc(sizeof *kept + n);
    if (!kept) return NULL;
    memcpy(kept->text, text, n);
    kept->next = all;
    all = kept;
    return kept->text;
}

static weft_err unknown_setting(enum weft_program program, const char *place, const char *name,
                                struct weft_errmsg *why) {
    struct weft_nearest nearest;
    weft_nearest_init(&nearest, (struct weft_str){name, strlen(name)});
    for (size_t i = 0; i < wefti_config_n_settings; i++) {
        const struct wefti_config_setting *s = &wefti_config_settings[i];
        if (s->programs & program && s->kind != WEFTI_CONFIG_FD)
            weft_nearest_offer(&nearest, s->name);
    }
    const char *meant = weft_nearest_name(&nearest);
    return weft_err_set(why, WEFT_E_INVAL, "%s: unknown setting \"%s\"%s%s%s", place, name,
                        meant ? "; did you mean \"" : "", meant ? meant : "", meant ? "\"?" : "");
}

weft_err wefti_config_read_file(enum weft_program program, const char *path,
                                struct weft_config *config, struct weft_errmsg *why) {
    FILE *file = fopen(path, "re");
    if (!file) return weft_err_errno(why, errno, "--config: cannot open \"%s\"", path);
    weft_err err = WEFT_OK;
    char line[4096];
    for (unsigned line_no = 1; !err && fgets(line, sizeof line, file); line_no++) {
        if (!strchr(line, '\n') && !feof(file)) {
            err =
                weft_err_set(why, WEFT_E_INVAL, "%s:%u: line too long, or not text", path, line_no);
            break;
        }
        char *name = trim(line);
        if (!*name || *name == '#') continue;
        char *eq = strchr(name, '=');
        if (!eq) {
            err =
                weft_err_set(why, WEFT_E_INVAL, "%s:%u: expected \"name = value\"", path, line_no);
            break;
        }
        *eq = '\0';
        char *value = trim(eq + 1);
        name = trim(name);
        for (char *p = name; *p; p++) {
            if (*p == '_') *p = '-';
        }
        const struct weft_str known = {name, strlen(name)};
        const struct wefti_config_setting *s = wefti_config_find(program, known);
        if (!s && wefti_config_find(UINT_MAX, known)) continue; /* one file for all actors */
        if (!s || s->kind == WEFTI_CONFIG_FD) {
            char place[4096 + 16];
            (void)snprintf(place, sizeof place, "%s:%u", path, line_no);
            err = unknown_setting(program, place, name, why);
            break;
        }
        char called[4096 + 64];
        (void)snprintf(called, sizeof called, "%s:%u: %s", path, line_no, s->name);
        err = take_quotes(&value) ? WEFT_OK
                                  : weft_err_set(why, WEFT_E_INVAL,
                                                 "%s: a quote has no end, or "
                                                 "something stands behind it",
                                                 called);
        const char *kept = wefti_config_is_number(s) ? value : wefti_config_keep(value);
        if (!kept)
            err = weft_err_set(why, WEFT_E_NOMEM, "no memory for the settings of \"%s\"", path);
        if (!err) err = wefti_config_set(config, s, called, kept, why);
    }
    if (!err && ferror(file))
        err = weft_err_errno(why, errno, "--config: cannot read \"%s\"", path);
    (void)fclose(file);
    return err;
}
