#include "sources/classes.h"

#include <threads.h>

#include "base/check.h"
#include "codec/unicode.h"

#define RANGES_MAX 1500u /* Unicode 15 has 1,300 of letters, numbers and gaps */

/* Looked up once: a million characters take some milliseconds, and an expression may have as many classes as bytes. */
static struct table {
    struct wefti_char_range ranges[RANGES_MAX];
    uint32_t n;
} digits, words;
static once_flag once = ONCE_FLAG_INIT;

static void fill(struct table *table, bool (*has)(uint32_t)) {
    for (uint32_t c = 0x80; c <= WEFTI_CHAR_MAX; c++) {
        if (!has(c)) continue;
        if (table->n > 0 && table->ranges[table->n - 1].last == c - 1) {
            table->ranges[table->n - 1].last = c;
            continue;
        }
        if (table->n == RANGES_MAX) { /* the last one takes all that is left: too wide is fine */
            table->ranges[table->n - 1].last = WEFTI_CHAR_MAX;
            return;
        }
        table->ranges[table->n++] = (struct wefti_char_range){c, c};
    }
}

static void fill_both(void) {
    fill(&digits, weft_unicode_may_be_digit);
    fill(&words, weft_unicode_may_be_alnum);
}

static void add_table(const struct table *table, struct wefti_chars *set) {
    for (uint32_t i = 0; i < table->n; i++)
        wefti_chars_add(set, table->ranges[i].first, table->ranges[i].last);
}

static void add_blanks(enum wefti_classes which, struct wefti_chars *set) {
    static const struct wefti_char_range more[] = {
        {0xa0, 0xa0},     {0x1680, 0x1680}, {0x2000, 0x200a}, {0x2028, 0x2029},
        {0x202f, 0x202f}, {0x205f, 0x205f}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
    wefti_chars_add(set, '\t', '\r');
    wefti_chars_add(set, ' ', ' ');
    if (which == WEFTI_CLASSES_ASCII) return;
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        wefti_chars_add(set, more[i].first, more[i].last);
    if (which == WEFTI_CLASSES_ECMA) return;
    wefti_chars_add(set, 0x1c, 0x1f);
    wefti_chars_add(set, 0x85, 0x85);
}

void wefti_classes_add(enum wefti_classes which, char letter, struct wefti_chars *set) {
    WEFT_ASSERT(letter == 'd' || letter == 'w' || letter == 's');
    if (letter == 's') {
        add_blanks(which, set);
        return;
    }
    wefti_chars_add(set, '0', '9');
    if (letter == 'w') {
        wefti_chars_add(set, 'A', 'Z');
        wefti_chars_add(set, '_', '_');
        wefti_chars_add(set, 'a', 'z');
    }
    if (which != WEFTI_CLASSES_WIDE) return;
    call_once(&once, fill_both);
    add_table(letter == 'd' ? &digits : &words, set);
}
