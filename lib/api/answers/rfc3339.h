/* rfc3339 — times as ollama writes them: "2026-01-31T12:00:00Z". */
#ifndef WEFT_API_RFC3339_H
#define WEFT_API_RFC3339_H

#include <stdint.h>
#include <time.h>

#define WEFTI_API_TIME_BYTES 40

static inline void wefti_api_time(int64_t unix_s, char out[WEFTI_API_TIME_BYTES]) {
    time_t time = (time_t)unix_s;
    struct tm tm;
    (void)gmtime_r(&time, &tm);
    if (strftime(out, WEFTI_API_TIME_BYTES, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0) out[0] = '\0';
}

#endif
