/* report — what a load came to: a table for people, an object for scripts, a line meanwhile. */
#ifndef WEFT_CMD_WEFT_REPORT_H
#define WEFT_CMD_WEFT_REPORT_H

#include "clients.h"

/* What was asked for, as far as the report repeats it. */
struct weft_report_facts {
    const char *arrivals; /* "closed", "poisson", ... */
    const char *trace;    /* NULL: none */
    bool has_goal;
    const struct weft_clients_options *clients;
};

void weft_report_json(const struct weft_report_facts *facts, struct weft_clients_result *result);
void weft_report_table(const struct weft_report_facts *facts, struct weft_clients_result *result);

/* One line on standard error, written over and over; and its end. */
void weft_report_progress(const struct weft_clients_progress *progress);
void weft_report_progress_end(void);

#endif
