/* grammar/classes: what the letters d, w and s stand for behind a backslash. */
#ifndef WEFTI_GRAMMAR_CLASSES_H
#define WEFTI_GRAMMAR_CLASSES_H

#include "expr/chars.h"

enum wefti_classes {
    WEFTI_CLASSES_ASCII,
    WEFTI_CLASSES_ECMA, /* ASCII, but all of Unicode's blanks */
    WEFTI_CLASSES_WIDE, /* all that Python may take for such a character, in any version */
};

void wefti_classes_add(enum wefti_classes which, char letter, struct wefti_chars *set);

#endif
