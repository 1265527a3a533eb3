/* base/cpu — which CPUs and how much memory this process may use. */
#ifndef WEFT_BASE_CPU_H
#define WEFT_BASE_CPU_H

#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* In a loop that waits for another thread: leaves the core to its sibling meanwhile. */
static inline void weft_cpu_pause(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#define WEFT_CPUS_MAX 1024 /* as many as a cpu_set_t has */

/* CPUs of the affinity mask, ascending; returns how many were written, at least 1. */
uint32_t weft_cpu_allowed(uint32_t cpus_out[WEFT_CPUS_MAX]);

/* A list as the kernel writes them, "0-3,8", of `len` bytes. INVAL: it is none, or empty, or names a
 * CPU beyond the limit. */
WEFT_MUST_CHECK weft_err weft_cpu_parse_list(const char *text, size_t len, cpu_set_t *cpus_out);

/* CPUs' worth of time that the cgroups (base/cgroup.h) grant, rounded up; 0: no limit. A container
 * with "2 CPUs" usually still sees all of the host's in its affinity mask, and threads beyond the
 * quota are stopped in the middle of a step. */
uint32_t weft_cpu_quota(void);

/* Pins the calling thread to one CPU. False where the system refuses; harmless. */
bool weft_cpu_pin(uint32_t cpu);

/* Bytes that can still be had: the smaller of MemAvailable and what the cgroups leave. 0: neither
 * is known. */
uint64_t weft_mem_available_bytes(void);

/* The most that could be had if the kernel dropped all files from the page cache, and swapped; and
 * the limit that it counts against: a cgroup's, or what the machine has. 0: not known. */
struct weft_mem_room {
    uint64_t most_bytes, limit_bytes;
    bool is_cgroup; /* the limit is a cgroup's */
};
struct weft_mem_room weft_mem_room(void);

/* Resident bytes of this process; 0 where /proc does not tell. */
uint64_t weft_mem_resident_bytes(void);

#endif
