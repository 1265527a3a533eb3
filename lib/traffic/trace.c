#include "trace.h"

#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "base/parse.h"
#include "base/str.h"

enum {
    COLUMNS_MAX = 64,
    FIELD_BYTES_MAX = 40, /* of one that matters */
    HASHES_MAX = WEFT_TRAFFIC_TOKENS_MAX / WEFT_TRAFFIC_BLOCK_TOKENS,
};

#define DAY_S 86400
#define YEAR_MIN 1970
#define YEAR_MAX 2500 /* nanoseconds fit 64 bits */
#define MS_MAX 1e13   /* three centuries: nanoseconds fit 64 bits */

struct reader {
    const char *name, *at, *end;
    uint32_t line, n_rows_max;
    struct weft_traffic_trace *trace;
    size_t rows_room, hashes_room;
    struct weft_errmsg *why;
};

/* The next line that is not blank, without its end. False: there is none. */
static bool next_line(struct reader *r, struct weft_str *line_out) {
    while (r->at < r->end) {
        const char *begin = r->at, *stop = memchr(begin, '\n', (size_t)(r->end - begin));
        size_t len = (size_t)((stop ? stop : r->end) - begin);
        r->at = stop ? stop + 1 : r->end;
        r->line++;
        while (len > 0 && isspace((unsigned char)begin[len - 1]))
            len--;
        *line_out = (struct weft_str){begin, len};
        if (len > 0) return true;
    }
    return false;
}

static weft_err fault(const struct reader *r, const char *what) {
    return weft_err_set(r->why, WEFT_E_PROTO, "%s, line %u: %s", r->name, r->line, what);
}

/* Room for `n` more entries of `entry_bytes` each, behind `n_used`; NULL: no memory. */
static void *grow(void *entries, size_t n_used, size_t n, size_t *room, size_t entry_bytes) {
    if (n_used + n <= *room) return entries;
    size_t n_new = *room ? *room : 256;
    while (n_new < n_used + n)
        n_new *= 2;
    void *grown = realloc(entries, n_new * entry_bytes);
    if (grown) *room = n_new;
    return grown;
}

static weft_err no_memory(const struct reader *r) {
    return weft_err_set(r->why, WEFT_E_NOMEM, "%s: no memory for its rows", r->name);
}

static weft_err add_row(struct reader *r, struct weft_traffic_row row) {
    struct weft_traffic_trace *trace = r->trace;
    if (trace->n_rows == WEFT_TRAFFIC_TRACE_ROWS_MAX)
        return weft_err_set(r->why, WEFT_E_TOOBIG, "%s has more than %d rows", r->name,
                            WEFT_TRAFFIC_TRACE_ROWS_MAX);
    struct weft_traffic_row *rows =
        grow(trace->rows, trace->n_rows, 1, &r->rows_room, sizeof *trace->rows);
    if (!rows) return no_memory(r);
    trace->rows = rows;
    rows[trace->n_rows++] = row;
    return WEFT_OK;
}

/* ------------------------------------------------------------------------------------- CSV --- */

/* Digits at *at, which moves on; false: there are not `n_digits`. */
static bool take_digits(const char **at, int n_digits, int64_t *value_out) {
    *value_out = 0;
    for (int i = 0; i < n_digits; i++, (*at)++) {
        if (!isdigit((unsigned char)**at)) return false;
        *value_out = *value_out * 10 + (**at - '0');
    }
    return true;
}

/* Days since the first of March of the year 0: years begin in March, so that the leap day is the
 * last. */
static int64_t day_number(int64_t year, int64_t month, int64_t day) {
    int64_t y = month > 2 ? year : year - 1, m = month > 2 ? month - 3 : month + 9;
    return 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day;
}

/* "2031-05-06 07:08:09.2500000", with 'T' instead of the space, and with a time zone behind, which
 * does not matter, since it is that of all rows. */
static bool parse_moment(const char *text, uint64_t *ns_out) {
    static const char separators[] = "--x::";
    int64_t part[6];
    for (int i = 0; i < 6; i++) {
        if (!take_digits(&text, i == 0 ? 4 : 2, &part[i])) return false;
        if (i == 5) break;
        if (i == 2 ? *text != ' ' && *text != 'T' : *text != separators[i]) return false;
        text++;
    }
    if (part[0] < YEAR_MIN || part[0] > YEAR_MAX) return false;
    if (part[1] < 1 || part[1] > 12 || part[2] < 1 || part[2] > 31) return false;
    if (part[3] > 23 || part[4] > 59 || part[5] > 60) return false;
    uint64_t ns = 0, unit = 1000000000;
    if (*text == '.') {
        for (text++; isdigit((unsigned char)*text); text++) {
            unit /= 10; /* digits behind the ninth count nothing */
            ns += unit * (uint64_t)(*text - '0');
        }
    }
    if (*text && !strchr("+-Z ", *text)) return false;
    int64_t days = day_number(part[0], part[1], part[2]) - day_number(YEAR_MIN, 1, 1);
    int64_t seconds = days * DAY_S + part[3] * 3600 + part[4] * 60 + part[5];
    *ns_out = (uint64_t)seconds * 1000000000u + ns;
    return true;
}

enum { MOMENT, TOKENS_IN, TOKENS_OUT, N_FIELDS };

/* The fields of a line, as many as there are, at most `n_max`. */
static int split(struct weft_str line, struct weft_str *fields_out, int n_max) {
    int n = 0;
    const char *at = line.data, *end = line.data + line.len;
    while (n < n_max) {
        const char *comma = memchr(at, ',', (size_t)(end - at));
        const char *stop = comma ? comma : end;
        fields_out[n++] = (struct weft_str){at, (size_t)(stop - at)};
        if (!comma) break;
        at = comma + 1;
    }
    return n;
}

static bool copy_field(struct weft_str field, char out[FIELD_BYTES_MAX]) {
    if (field.len >= FIELD_BYTES_MAX || memchr(field.data, 0, field.len)) return false;
    memcpy(out, field.data, field.len);
    out[field.len] = '\0';
    return true;
}

static weft_err take_csv_row(struct reader *r, struct weft_str line, const int at[N_FIELDS]) {
    struct weft_str fields[COLUMNS_MAX];
    char text[N_FIELDS][FIELD_BYTES_MAX];
    struct weft_traffic_row row = {0};
    uint64_t n_in, n_out;
    int n = split(line, fields, COLUMNS_MAX);
    for (int i = 0; i < N_FIELDS; i++) {
        if (at[i] >= n) return fault(r, "has fewer fields than the heading");
        if (!copy_field(fields[at[i]], text[i])) return fault(r, "a field is too long");
    }
    if (!parse_moment(text[MOMENT], &row.at_ns))
        return fault(r, "TIMESTAMP is not like 2031-05-06 07:08:09.25");
    if (weft_parse_u64(text[TOKENS_IN], WEFT_TRAFFIC_TOKENS_MAX, &n_in) ||
        weft_parse_u64(text[TOKENS_OUT], WEFT_TRAFFIC_TOKENS_MAX, &n_out))
        return fault(r, "ContextTokens and GeneratedTokens are numbers up to 16777216");
    row.n_in = (uint32_t)n_in;
    row.n_out = (uint32_t)n_out;
    return add_row(r, row);
}

static weft_err read_csv(struct reader *r, struct weft_str heading) {
    static const char *const names[N_FIELDS] = {"TIMESTAMP", "ContextTokens", "GeneratedTokens"};
    struct weft_str fields[COLUMNS_MAX], line;
    int at[N_FIELDS] = {-1, -1, -1}, n = split(heading, fields, COLUMNS_MAX);
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < N_FIELDS; k++)
            if (weft_str_is(fields[i], names[k], strlen(names[k]))) at[k] = i;
    }
    if (at[MOMENT] < 0 || at[TOKENS_IN] < 0 || at[TOKENS_OUT] < 0)
        return fault(r, "is neither JSON nor a heading with TIMESTAMP, ContextTokens and "
                        "GeneratedTokens");
    weft_err err = WEFT_OK;
    while (!err && r->trace->n_rows < r->n_rows_max && next_line(r, &line))
        err = take_csv_row(r, line, at);
    return err;
}

/* ----------------------------------------------------------------------------------- JSONL --- */

static bool get_tokens(const json_t *row, const char *name, uint32_t *n_out) {
    const json_t *value = json_object_get(row, name);
    json_int_t n = json_integer_value(value);
    if (!json_is_integer(value) || n < 0 || n > WEFT_TRAFFIC_TOKENS_MAX) return false;
    *n_out = (uint32_t)n;
    return true;
}

static weft_err take_hashes(struct reader *r, const json_t *ids, struct weft_traffic_row *row) {
    struct weft_traffic_trace *trace = r->trace;
    size_t n = json_array_size(ids);
    if (!ids || json_is_null(ids)) return WEFT_OK;
    if (!json_is_array(ids) || n > HASHES_MAX) return fault(r, "hash_ids is not a list of numbers");
    uint64_t *hashes =
        grow(trace->hashes, trace->n_hashes, n, &r->hashes_room, sizeof *trace->hashes);
    if (!hashes && n > 0) return no_memory(r);
    if (hashes) trace->hashes = hashes;
    row->first_hash = trace->n_hashes;
    row->n_hashes = (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(ids, i);
        if (!json_is_integer(id)) return fault(r, "hash_ids is not a list of numbers");
        hashes[trace->n_hashes + i] = (uint64_t)json_integer_value(id);
    }
    trace->n_hashes += n;
    return WEFT_OK;
}

static weft_err take_json_row(struct reader *r, const json_t *json) {
    struct weft_traffic_row row = {0};
    const json_t *moment = json_object_get(json, "timestamp");
    double ms = json_number_value(moment);
    if (!json_is_object(json)) return fault(r, "is not a JSON object");
    if (!json_is_number(moment) || !(ms >= 0 && ms <= MS_MAX))
        return fault(r, "timestamp is not a number of milliseconds");
    if (!get_tokens(json, "input_length", &row.n_in) ||
        !get_tokens(json, "output_length", &row.n_out))
        return fault(r, "input_length and output_length are numbers up to 16777216");
    row.at_ns = (uint64_t)llround(ms * 1e6);
    weft_err err = take_hashes(r, json_object_get(json, "hash_ids"), &row);
    return err ? err : add_row(r, row);
}

static weft_err read_jsonl(struct reader *r, struct weft_str line) {
    weft_err err = WEFT_OK;
    do {
        json_error_t where;
        json_t *json = json_loadb(line.data, line.len, 0, &where);
        if (!json && json_error_code(&where) == json_error_out_of_memory) return no_memory(r);
        if (!json) return fault(r, "is not JSON");
        err = take_json_row(r, json);
        json_decref(json);
    } while (!err && r->trace->n_rows < r->n_rows_max && next_line(r, &line));
    return err;
}

/* --------------------------------------------------------------------------------- all of it --- */

/* A row with its place in the file, which decides between rows of one moment: qsort may swap them. */
struct place {
    struct weft_traffic_row row;
    uint32_t idx;
};

static int by_moment(const void *a, const void *b) {
    const struct place *x = a, *y = b;
    if (x->row.at_ns != y->row.at_ns) return x->row.at_ns < y->row.at_ns ? -1 : 1;
    return (x->idx > y->idx) - (x->idx < y->idx);
}

static weft_err put_in_order(struct reader *r) {
    struct weft_traffic_row *rows = r->trace->rows;
    uint32_t n = r->trace->n_rows, n_ordered = 1;
    while (n_ordered < n && rows[n_ordered - 1].at_ns <= rows[n_ordered].at_ns)
        n_ordered++;
    if (n_ordered < n) {
        struct place *places = malloc(n * sizeof *places);
        if (!places) return no_memory(r);
        for (uint32_t i = 0; i < n; i++)
            places[i] = (struct place){rows[i], i};
        qsort(places, n, sizeof *places, by_moment);
        for (uint32_t i = 0; i < n; i++)
            rows[i] = places[i].row;
        free(places);
    }
    uint64_t first_ns = rows[0].at_ns;
    for (uint32_t i = 0; i < n; i++)
        rows[i].at_ns -= first_ns;
    return WEFT_OK;
}

weft_err weft_traffic_trace_parse(const char *name, const char *text, size_t len,
                                  uint32_t n_rows_max, struct weft_traffic_trace *trace_out,
                                  struct weft_errmsg *why) {
    struct reader r = {.name = name,
                       .at = text,
                       .end = text + len,
                       .n_rows_max = n_rows_max ? n_rows_max : UINT32_MAX,
                       .trace = trace_out,
                       .why = why};
    struct weft_str line;
    weft_err err;
    *trace_out = (struct weft_traffic_trace){0};
    if (!next_line(&r, &line)) {
        err = weft_err_set(why, WEFT_E_PROTO, "%s is empty", name);
    } else if (line.data[0] == '{') {
        err = read_jsonl(&r, line);
    } else {
        err = read_csv(&r, line);
    }
    if (!err && trace_out->n_rows == 0)
        err = weft_err_set(why, WEFT_E_PROTO, "%s has a heading and no rows", name);
    if (!err) err = put_in_order(&r);
    if (err) weft_traffic_trace_fini(trace_out);
    WEFT_ASSERT(err || trace_out->rows[0].at_ns == 0);
    return err;
}

weft_err weft_traffic_trace_read(const char *path, uint32_t n_rows_max,
                                 struct weft_traffic_trace *trace_out, struct weft_errmsg *why) {
    char *text;
    size_t len;
    *trace_out = (struct weft_traffic_trace){0};
    weft_err err =
        weft_file_read(path, WEFT_FILE_ANY, WEFT_TRAFFIC_TRACE_BYTES_MAX, &text, &len, why);
    if (!err) err = weft_traffic_trace_parse(path, text, len, n_rows_max, trace_out, why);
    free(text);
    return err;
}

void weft_traffic_trace_fini(struct weft_traffic_trace *trace) {
    free(trace->rows);
    free(trace->hashes);
    *trace = (struct weft_traffic_trace){0};
}
