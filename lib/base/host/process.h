/* base/process — what this process has used of the machine, as monitoring asks for it. */
#ifndef WEFT_BASE_PROCESS_H
#define WEFT_BASE_PROCESS_H

#include <stdint.h>

struct weft_process {
    double cpu_seconds; /* of all its threads, user and system */
    uint32_t open_files;
    uint64_t max_files; /* the soft limit; UINT64_MAX: none */
};

/* Takes microseconds; on kernels before 6.2 some more per open file. What the system does not tell
 * is 0. */
void weft_process_read(struct weft_process *out);

/* Open descriptors; 0: the system does not tell. */
uint32_t weft_process_open_files(void);

#endif
