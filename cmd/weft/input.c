#include "input.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "codec/utf8.h"

weft_err weft_input_read(struct weft_buf *out, struct weft_errmsg *why) {
    char chunk[65536];
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, stdin)) > 0 && !out->failed;)
        weft_buf_add(out, chunk, n);
    if (ferror(stdin)) return weft_err_errno(why, errno, "cannot read standard input");
    if (out->failed)
        return weft_err_set(why, WEFT_E_TOOBIG, "standard input is longer than %zu bytes",
                            out->max_bytes);
    return WEFT_OK;
}

void weft_input_lines_init(struct weft_input_lines *lines, const volatile sig_atomic_t *stop) {
    *lines = (struct weft_input_lines){.stop = stop};
    /* U+FFFD is longer than the byte that it stands for. */
    weft_buf_init(&lines->line, (size_t)3 * WEFT_INPUT_LINE_BYTES_MAX);
    weft_buf_init(&lines->raw, 2 * WEFT_INPUT_LINE_BYTES_MAX);
}

void weft_input_lines_fini(struct weft_input_lines *lines) {
    weft_buf_fini(&lines->line);
    weft_buf_fini(&lines->raw);
}

/* AGAIN: `stop` was set before there was something to read. A signal that comes between the look at
 * `stop` and the wait would be lost if it were not blocked until the wait begins. */
static weft_err wait_for_bytes(const struct weft_input_lines *lines, struct weft_errmsg *why) {
    struct pollfd fd = {.fd = STDIN_FILENO, .events = POLLIN};
    sigset_t interrupt, before;
    if (!lines->stop) return WEFT_OK;
    (void)sigemptyset(&interrupt);
    (void)sigaddset(&interrupt, SIGINT);
    (void)sigprocmask(SIG_BLOCK, &interrupt, &before);
    weft_err err = WEFT_OK;
    while (!err && !*lines->stop) {
        if (ppoll(&fd, 1, NULL, &before) > 0) break;
        if (errno != EINTR) err = weft_err_errno(why, errno, "cannot wait for standard input");
    }
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    return err ? err : *lines->stop ? WEFT_E_AGAIN : WEFT_OK;
}

/* One read. */
static weft_err read_more(struct weft_input_lines *lines, struct weft_errmsg *why) {
    char chunk[16384];
    weft_err err = wait_for_bytes(lines, why);
    if (err) return err;
    ssize_t n = read(STDIN_FILENO, chunk, sizeof chunk);
    if (n < 0 && errno == EINTR) return WEFT_OK;
    if (n < 0) return weft_err_errno(why, errno, "cannot read standard input");
    lines->at_end = n == 0;
    weft_buf_add(&lines->raw, chunk, (size_t)n);
    return lines->raw.failed ? weft_err_set(why, WEFT_E_NOMEM, "no memory for a line") : WEFT_OK;
}

weft_err weft_input_next(struct weft_input_lines *lines, struct weft_errmsg *why) {
    size_t n_seen = 0;
    bool too_long = false;
    struct weft_buf *raw = &lines->raw;
    for (;;) {
        const char *end =
            raw->len > n_seen ? memchr(raw->data + n_seen, '\n', raw->len - n_seen) : NULL;
        size_t n = end ? (size_t)(end - raw->data) : raw->len;
        WEFT_ASSERT(n <= raw->len);
        if (n > WEFT_INPUT_LINE_BYTES_MAX) too_long = true;
        if (end || (lines->at_end && (raw->len > 0 || too_long))) {
            weft_buf_clear(&lines->line);
            if (!too_long) weft_utf8_clean(&lines->line, raw->data, n);
            weft_buf_drop_front(raw, end ? n + 1 : n);
            if (too_long)
                return weft_err_set(why, WEFT_E_TOOBIG, "a line has more than %u bytes",
                                    WEFT_INPUT_LINE_BYTES_MAX);
            return lines->line.failed ? weft_err_set(why, WEFT_E_NOMEM, "no memory for a line")
                                      : WEFT_OK;
        }
        if (lines->at_end) return WEFT_E_CLOSED;
        if (too_long) weft_buf_clear(raw);
        n_seen = raw->len;
        weft_err err = read_more(lines, why);
        if (err) return err;
    }
}
