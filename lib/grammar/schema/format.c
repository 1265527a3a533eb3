#include "schema/format.h"

#include <stddef.h>
#include <string.h>

/* RFC 3339 with the days that months have, and leap years by the Gregorian rule. */
#define YEAR_LEAP "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
#define DATE                                                                                       \
    "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]["   \
    "0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|" YEAR_LEAP "-02-29)"
#define TIME                                                                                       \
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:[Zz]|[+-](?:[01][0-9]|2[0-3]"  \
    "):[0-5][0-9])"
#define OCTET "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4 "(?:" OCTET "\\.){3}" OCTET
#define H16 "[0-9a-fA-F]{1,4}"
#define LS32 "(?:" H16 ":" H16 "|" IPV4 ")"
/* RFC 3986's IPv6address. */
#define IPV6                                                                                       \
    "(?:(?:" H16 ":){6}" LS32 "|::(?:" H16 ":){5}" LS32 "|(?:" H16 ")?::(?:" H16 ":){4}" LS32      \
    "|(?:(?:" H16 ":){0,1}" H16 ")?::(?:" H16 ":){3}" LS32 "|(?:(?:" H16 ":){0,2}" H16             \
    ")?::(?:" H16 ":){2}" LS32 "|(?:(?:" H16 ":){0,3}" H16 ")?::" H16 ":" LS32 "|(?:(?:" H16       \
    ":){0,4}" H16 ")?::" LS32 "|(?:(?:" H16 ":){0,5}" H16 ")?::" H16 "|(?:(?:" H16 ":){0,6}" H16   \
    ")?::)"
#define LABEL "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
/* Without xn-- and the like: what they stand for is not looked into. */
#define HOST "(?!..--|.*\\...--)(?=.{1,253}$)" LABEL "(?:\\." LABEL ")*"
#define ATEXT "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]+"
#define PCT "%[0-9a-fA-F]{2}"
#define PCHAR "(?:[a-zA-Z0-9._~!$&'()*+,;=:@-]|" PCT ")"
#define AUTHORITY                                                                                  \
    "(?:(?:[a-zA-Z0-9._~!$&'()*+,;=:-]|" PCT ")*@)?(?:\\[" IPV6                                    \
    "\\]|(?:[a-zA-Z0-9._~!$&'()*+,;=-]|" PCT ")*)(?::[0-9]*)?"
#define TAIL "(?:\\?(?:" PCHAR "|[/?])*)?(?:#(?:" PCHAR "|[/?])*)?"
#define HIER                                                                                       \
    "(?://" AUTHORITY "(?:/" PCHAR "*)*|/(?:" PCHAR "+(?:/" PCHAR "*)*)?|" PCHAR "+(?:/" PCHAR     \
    "*)*)?"
#define RELATIVE                                                                                   \
    "(?://" AUTHORITY "(?:/" PCHAR "*)*|/(?:" PCHAR "+(?:/" PCHAR "*)*)?|(?:[a-zA-Z0-9._~!$&'()*"  \
    "+,;=@-]|" PCT ")+(?:/" PCHAR "*)*)?" TAIL
#define URI "[a-zA-Z][a-zA-Z0-9+.-]*:" HIER TAIL
#define DURATION_TIME "T(?:[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?|[0-9]+M(?:[0-9]+S)?|[0-9]+S)"
#define DURATION_DATE "(?:[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?|[0-9]+M(?:[0-9]+D)?|[0-9]+D)"
#define POINTER "(?:/(?:[^~/]|~[01])*)*"

/* Beyond what the standards say, so far as some reader takes it. */
#define WIDE_TIME                                                                                  \
    "(?:[01][0-9]|2[0-4]):[0-5][0-9]:(?:[0-5][0-9]|60)(?:[.,][0-9]*)?(?:[Zz]|[+-][0-9]{2}(?::?[0-" \
    "9]{2})?)?"
#define ANYTHING "(?s:.)*"

/* `regex`: surely of the format; "[0-9]+" is bounded as numbers are. `wide`: all that may be of it; what is not is
 * surely of its complement. NULL: the same. */
static const struct {
    const char *name, *regex, *wide;
} formats[] = {
    {"date-time", DATE "[Tt]" TIME, DATE "[Tt_ ]" WIDE_TIME},
    {"date", DATE, NULL},
    {"time", TIME, WIDE_TIME},
    {"duration", "P(?:[0-9]+W|" DURATION_DATE "(?:" DURATION_TIME ")?|" DURATION_TIME ")",
     "[+-]?P[0-9A-Za-z.,:+-]*"},
    {"email", "(?=.{1,64}@)" ATEXT "(?:\\." ATEXT ")*@" LABEL "(?:\\." LABEL ")*",
     ANYTHING "@" ANYTHING},
    {"hostname", HOST, "[a-zA-Z0-9_.-]*"},
    {"ipv4", IPV4, "[0-9a-fA-FxX.]*"},
    {"ipv6", IPV6, "[0-9a-fA-F.]*:[0-9a-fA-F:.]*(?:%" ANYTHING ")?"},
    {"uri", URI, "[a-zA-Z][a-zA-Z0-9+.-]*:" ANYTHING},
    {"uri-reference", "(?:" URI "|" RELATIVE ")", "[^\\x00-\\x20<>\"]*"},
    {"uuid", "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", "[0-9a-zA-Z:{}-]*"},
    {"json-pointer", POINTER, NULL},
    {"relative-json-pointer", "(?:0|[1-9][0-9]*)(?:#|" POINTER ")", "[0-9]" ANYTHING},
    {"idn-email", NULL, NULL},
    {"idn-hostname", NULL, NULL},
    {"iri", NULL, NULL},
    {"iri-reference", NULL, NULL},
    {"uri-template", NULL, NULL},
    {"regex", NULL, NULL},
};

static void add_bounded(struct weft_buf *out, const char *regex, uint32_t n_digits) {
    static const char digits[] = "[0-9]+";
    for (const char *next; (next = strstr(regex, digits)); regex = next + sizeof digits - 1) {
        weft_buf_add(out, regex, (size_t)(next - regex));
        weft_buf_printf(out, "[0-9]{1,%u}", n_digits);
    }
    weft_buf_add_str(out, regex);
}

bool wefti_format_regex(const char *name, uint32_t n_digits, struct weft_buf *out,
                        const char **wide_out, bool *is_standard_out) {
    *wide_out = NULL;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        if (strcmp(name, formats[i].name) != 0) continue;
        *is_standard_out = true;
        *wide_out = formats[i].wide;
        if (formats[i].regex) add_bounded(out, formats[i].regex, n_digits);
        return formats[i].regex != NULL;
    }
    *is_standard_out = false;
    return false;
}
