/* input — what people write on standard input: all of it, or line by line. */
#ifndef WEFT_CMD_WEFT_INPUT_H
#define WEFT_CMD_WEFT_INPUT_H

#include <signal.h>
#include <stdbool.h>

#include "base/buf.h"

/* Appends all of standard input. TOOBIG: over the buffer's ceiling; IO. */
WEFT_MUST_CHECK weft_err weft_input_read(struct weft_buf *out, struct weft_errmsg *why);

#define WEFT_INPUT_LINE_BYTES_MAX (1u << 20)

struct weft_input_lines {
    struct weft_buf line; /* the last one, without its end; ill-formed UTF-8 became U+FFFD */
    struct weft_buf raw;  /* read, and not a line yet */
    bool at_end;
    /* When it is not 0 the wait for a line ends; NULL: nothing ends it. It may be set by a handler of
     * SIGINT: the signal is let through while waiting, and only then. */
    const volatile sig_atomic_t *stop;
};

void weft_input_lines_init(struct weft_input_lines *lines, const volatile sig_atomic_t *stop);
void weft_input_lines_fini(struct weft_input_lines *lines);

/* Waits for the next line. CLOSED: there is none; AGAIN: `stop` is set; TOOBIG: it was longer than
 * WEFT_INPUT_LINE_BYTES_MAX, and has been passed over; IO, NOMEM. */
WEFT_MUST_CHECK weft_err weft_input_next(struct weft_input_lines *lines, struct weft_errmsg *why);

#endif
