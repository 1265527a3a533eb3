/* From ids to text, one id at a time. */
#include "base/check.h"
#include "codec/utf8.h"
#include "tables.h"

void weft_detok_init(struct weft_detok *detok, const weft_tokenizer *tok, bool skip_special) {
    *detok = (struct weft_detok){
        .tok = tok, .skip_special = skip_special, .at_start = tok->strip_first_space};
}

void weft_detok_push(struct weft_detok *detok, uint32_t id, struct weft_buf *out) {
    if (detok->skip_special && weft_tok_is_special(detok->tok, id)) return;
    size_t len;
    const char *bytes = weft_tok_token_bytes(detok->tok, id, &len);
    if (len == 0) return;
    if (detok->at_start && bytes[0] == ' ') {
        bytes++;
        len--;
    }
    detok->at_start = false; /* also by a special token that is shown */
    weft_utf8_feed(detok->pending, &detok->n_pending, bytes, len, out);
}

void weft_detok_finish(struct weft_detok *detok, struct weft_buf *out) {
    WEFT_ASSERT(detok->n_pending < 4);
    if (detok->n_pending > 0) weft_buf_add_str(out, WEFT_UTF8_REPLACEMENT);
    detok->n_pending = 0;
}
