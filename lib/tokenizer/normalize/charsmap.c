/* SentencePiece's precompiled normaliser: a double-array trie of replaced texts, and their
 * replacements.
 *
 * The file format is a u32 with the bytes of the trie, the trie (u32 per unit, little-endian) and
 * the replacements, each ended by a 0; a leaf holds the offset of its replacement. A unit's lowest
 * byte is its label, bit 8 says that a leaf follows, the rest is the distance to its children.
 *
 * Nothing in the map is trusted: every index is checked as it is used, a match begins and ends
 * between characters, and its replacement is valid UTF-8 of bounded length. */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "base/check.h"
#include "base/cursor.h"
#include "base/utf8.h"
#include "codec/utf8.h"
#include "normalize/charsmap.h"
#include "vocab/vocab.h"

#define MAP_BYTES_MAX (16u << 20) /* the ones in use have 240 kB */
#define MATCH_BYTES_MAX 256       /* no map replaces more at once; also ends a loop in the trie */
#define SHORT_CLUSTER 6           /* bytes below which Hugging Face looks a cluster up whole */

static uint32_t unit_offset(uint32_t unit) {
    return unit >> 10 << ((unit & 0x200u) >> 6);
}

void wefti_tok_charsmap_free(struct wefti_tok_charsmap *map) {
    if (!map) return;
    free(map->units);
    free(map->texts);
    free(map);
}

weft_err wefti_tok_charsmap_new(const void *bytes, size_t n, struct wefti_tok_charsmap **map_out,
                                struct weft_errmsg *why) {
    *map_out = NULL;
    struct weft_cursor cur;
    weft_cursor_init(&cur, bytes, n);
    size_t trie_bytes = weft_cursor_u32(&cur);
    const unsigned char *trie = weft_cursor_take(&cur, trie_bytes);
    if (n > MAP_BYTES_MAX || cur.failed || trie_bytes == 0 || trie_bytes % 4 != 0)
        return weft_err_set(why, WEFT_E_PROTO, "the precompiled normaliser of %zu bytes is damaged",
                            n);
    size_t texts_len = weft_cursor_left(&cur);
    struct wefti_tok_charsmap *map = calloc(1, sizeof *map);
    if (!map) return WEFT_E_NOMEM;
    map->n_units = trie_bytes / 4;
    map->texts_len = texts_len;
    map->units = malloc(trie_bytes);
    map->texts = malloc(texts_len + 1);
    if (!map->units || !map->texts) {
        wefti_tok_charsmap_free(map);
        return WEFT_E_NOMEM;
    }
    struct weft_cursor units;
    weft_cursor_init(&units, trie, trie_bytes);
    for (size_t i = 0; i < map->n_units; i++)
        map->units[i] = weft_cursor_u32(&units);
    if (texts_len > 0) memcpy(map->texts, cur.at, texts_len);
    map->texts[texts_len] = 0; /* the last one ends, too */
    if (!weft_utf8_valid(map->texts, texts_len)) {
        wefti_tok_charsmap_free(map);
        return weft_err_set(why, WEFT_E_PROTO,
                            "the precompiled normaliser writes what is not UTF-8");
    }
    *map_out = map;
    return WEFT_OK;
}

/* The replacement that a leaf stands for; false: it starts inside a character, lies outside or is
 * too long. */
static bool text_at(const struct wefti_tok_charsmap *map, uint32_t value, struct weft_str *out) {
    if (value >= map->texts_len || ((unsigned char)map->texts[value] & 0xC0) == 0x80) return false;
    *out = (struct weft_str){map->texts + value,
                             strnlen(map->texts + value, WEFTI_TOK_ENTRY_BYTES_MAX + 1)};
    return out->len <= WEFTI_TOK_ENTRY_BYTES_MAX;
}

static bool is_char_end(const char *text, size_t len, size_t at) {
    return at == len || ((unsigned char)text[at] & 0xC0) != 0x80;
}

/* The length in bytes of the longest (or shortest) prefix of `text` that the map replaces, or 0. */
static size_t find_prefix(const struct wefti_tok_charsmap *map, const char *text, size_t len,
                          bool shortest, struct weft_str *out) {
    size_t best = 0;
    uint32_t at = unit_offset(map->units[0]);
    struct weft_str to;
    size_t whole_len = len;
    if (len > MATCH_BYTES_MAX) len = MATCH_BYTES_MAX;
    for (size_t i = 0; i < len && text[i]; i++) {
        uint32_t byte = (unsigned char)text[i];
        at ^= byte;
        if (at >= map->n_units) break;
        uint32_t unit = map->units[at];
        if ((unit & 0x800000FFu) != byte) break;
        at ^= unit_offset(unit);
        if (!(unit & 0x100u)) continue;
        if (at >= map->n_units) break;
        if (!is_char_end(text, whole_len, i + 1)) continue;
        if (!text_at(map, map->units[at] & 0x7FFFFFFFu, &to)) continue;
        *out = to;
        best = i + 1;
        if (shortest) break;
    }
    return best;
}

size_t wefti_tok_charsmap_next(const struct wefti_tok_charsmap *map, const char *text, size_t len,
                               struct weft_str *out) {
    WEFT_ASSERT(len > 0);
    size_t n = map ? find_prefix(map, text, len, false, out) : 0;
    if (n > 0) return n;
    n = weft_utf8_len(*text);
    *out = (struct weft_str){text, n};
    return n;
}

/* Bytes of the first grapheme cluster. */
static size_t cluster_len(const char *text, size_t len) {
    size_t at, n;
    utf8proc_int32_t state = 0;
    uint32_t last = weft_utf8_get(text, &at);
    while (at < len) {
        uint32_t code = weft_utf8_get(text + at, &n);
        bool ends = last < 0x300 && code < 0x300 && last != '\r';
        if (ends || utf8proc_grapheme_break_stateful((utf8proc_int32_t)last, (utf8proc_int32_t)code,
                                                     &state))
            break;
        last = code;
        at += n;
    }
    return at;
}

/* Hugging Face replaces a whole cluster by the replacement of its shortest known prefix. */
void wefti_tok_charsmap_clusters(const struct wefti_tok_charsmap *map, const struct weft_buf *in,
                                 struct weft_buf *out) {
    WEFT_ASSERT(in != out);
    for (size_t at = 0, n; at < in->len && !out->failed; at += n) {
        const char *text = in->data + at;
        struct weft_str to;
        n = cluster_len(text, in->len - at);
        if (n < SHORT_CLUSTER && find_prefix(map, text, n, true, &to) > 0) {
            weft_buf_add(out, to.data, to.len);
            continue;
        }
        for (size_t i = 0, char_len; i < n; i += char_len) {
            char_len = weft_utf8_len(text[i]);
            if (find_prefix(map, text + i, char_len, true, &to) == 0)
                to = (struct weft_str){text + i, char_len};
            weft_buf_add(out, to.data, to.len);
        }
    }
}
