/* SentencePiece's normaliser, before the text is cut into pieces: it replaces characters by the map
 * of the model, squeezes and trims spaces, puts one in front, and writes them as U+2581.
 * User-defined symbols pass through the map as they are. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "normalize/sentence.h"
#include "vocab/alphabet.h"

void wefti_tok_sentence_free(struct wefti_tok_sentence *sentence) {
    if (!sentence) return;
    wefti_tok_charsmap_free(sentence->map);
    wefti_tok_added_fini(&sentence->kept);
    free(sentence);
}

/* The next text by the map or a user-defined symbol; returns the bytes read. */
static size_t next(const struct wefti_tok_sentence *sentence, const char *text, size_t len,
                   struct weft_str *out) {
    const struct wefti_tok_added_token *kept =
        wefti_tok_added_longest(&sentence->kept, true, text, len);
    if (!kept) return wefti_tok_charsmap_next(sentence->map, text, len, out);
    *out = (struct weft_str){text, kept->len};
    return kept->len;
}

static void add_space(const struct wefti_tok_sentence *sentence, struct weft_buf *out) {
    weft_buf_add_str(out, sentence->escape ? WEFTI_TOK_MARK : " ");
}

static void add_escaped(const struct wefti_tok_sentence *sentence, struct weft_str text,
                        struct weft_buf *out) {
    while (text.len > 0) {
        const char *space = memchr(text.data, ' ', text.len);
        size_t n = space ? (size_t)(space - text.data) : text.len;
        weft_buf_add(out, text.data, n);
        if (space) add_space(sentence, out);
        n += space != NULL;
        text.data += n;
        text.len -= n;
    }
}

static void trim_end(const struct wefti_tok_sentence *sentence, struct weft_buf *out) {
    struct weft_str space = {sentence->escape ? WEFTI_TOK_MARK : " ", sentence->escape ? 3 : 1};
    while (out->len >= space.len &&
           memcmp(out->data + out->len - space.len, space.data, space.len) == 0)
        out->len -= space.len;
}

void wefti_tok_sentence_run(const struct wefti_tok_sentence *sentence, const struct weft_buf *in,
                            bool first, struct weft_buf *out) {
    WEFT_ASSERT(in != out);
    struct weft_str to;
    size_t at = 0;
    while (sentence->squeeze && at < in->len) {
        size_t n = next(sentence, in->data + at, in->len - at, &to);
        if (!WEFT_STR_IS(to, " ")) break;
        at += n;
    }
    if (at == in->len) return;
    if (sentence->prefix && (first || !sentence->prefix_once)) add_space(sentence, out);
    bool behind_space = sentence->squeeze;
    while (at < in->len && !out->failed) {
        at += next(sentence, in->data + at, in->len - at, &to);
        while (behind_space && to.len > 0 && *to.data == ' ') {
            to.data++;
            to.len--;
        }
        if (to.len == 0) continue;
        add_escaped(sentence, to, out);
        behind_space = sentence->squeeze && to.data[to.len - 1] == ' ';
    }
    if (sentence->squeeze) trim_end(sentence, out);
    if (sentence->suffix) add_space(sentence, out);
}
