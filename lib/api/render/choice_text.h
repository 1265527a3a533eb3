/* choice_text — the text of a choice, token by token: decoded, cut at its stop strings, counted.
 *
 * Positions count tokens: those of the prompt, when it is echoed, then the output.
 * Stops    A stop string must be found as soon as its last token comes, but text is made only when
 *          the client has room for it. So a choice with stop strings is read twice: by a scan as
 *          tokens come, which discards the text, and by the view that renders. Both must see the
 *          same.
 */
#ifndef WEFT_API_RENDER_CHOICE_TEXT_H
#define WEFT_API_RENDER_CHOICE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/end.h"
#include "base/err.h"
#include "codec/json_check.h"
#include "message/message.h"
#include "tokenizer/tokenizer.h"

struct choice;
struct job;

/* Blocks of an answer that is a list of them (kinds/messages.h). */
struct block_view {
    uint32_t n;                   /* begun */
    bool is_open;                 /* the last of them is */
    enum weft_msg_kind kind;      /* its */
    uint32_t n_calls, n_whole;    /* calls begun; the first ones of which the arguments are whole */
    struct weft_json_check check; /* of the last call's */
};

/* How far one choice has been rendered. */
struct choice_view {
    struct weft_detok detok;
    struct weft_stop *stop;           /* NULL: none, or done */
    weft_msg_parser *parser;          /* NULL: its text is told as it is */
    uint32_t n_thoughts;              /* tokens of what it thinks */
    struct weft_json_check arguments; /* of its last call */
    struct block_view blocks;
    struct weft_detok offset_detok; /* for text_offset: the place of each token */
    uint64_t n_chars;
    size_t n_echoed; /* bytes of an echoed text sent before its tokens */
    uint32_t pos;
    uint32_t n_told; /* of `pos`, those that a stream's chunks cover; the others wait for text */
    bool is_begun, is_opened, is_stopped, is_closed;
};

/* The reader that runs ahead. */
struct choice_scan {
    struct weft_stop *stop;  /* NULL: no stop strings, or the choice has ended */
    weft_msg_parser *parser; /* NULL: calls don't end it, or likewise */
    struct weft_detok detok;
};

uint32_t wefti_api_seq_echoed(const struct choice *choice);
uint32_t wefti_api_seq_len(const struct choice *choice);
uint32_t wefti_api_seq_token(const struct choice *choice, uint32_t pos);

/* Begins (again) at position 0. */
void wefti_api_text_begin(struct choice *choice);

/* Appends the text that the token at `pos` adds; positions in order. */
void wefti_api_text_push(struct choice *choice, uint32_t pos, struct weft_buf *text);

/* Appends what was held back, once it is certain that nothing more comes. */
void wefti_api_text_flush(struct choice *choice, struct weft_buf *text);

/* Characters of text before the token at `pos`; asked once for each position, in order. */
uint64_t wefti_api_text_offset(struct choice *choice, uint32_t pos);

void wefti_api_view_fini(struct choice_view *view);

/* The start of the scans of a job's choices: decodes text after its prompt as views will. */
struct weft_detok wefti_api_scan_detok(const struct job *job);

/* The same for one choice. NOMEM. */
WEFT_MUST_CHECK weft_err wefti_api_scan_begin(struct choice *choice,
                                              const struct weft_detok *detok);
void wefti_api_scan_fini(struct choice_scan *scan);

/* Why the choice's last token ends it: its text completes a stop string (choice->stop_idx), or the one call that is
 * wanted (COMPLETE). */
enum weft_end wefti_api_scan_push(struct choice *choice, uint32_t token);

#endif
