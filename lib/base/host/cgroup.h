/* base/cgroup — what the control groups of this process leave it: v2, v1, or both at once.
 *
 * A process is bound by its own group and by all above it, so each answer is the least of them,
 * from /proc/self/cgroup's path up to the root of the hierarchy. In a container that path may name
 * folders that are not there: the root is then the container's own group. Hierarchies are looked
 * for where every distribution mounts them, in /sys/fs/cgroup.
 *
 * `root` stands before every path: "" outside of tests. */
#ifndef WEFT_BASE_CGROUP_H
#define WEFT_BASE_CGROUP_H

#include <stdint.h>

/* CPUs' worth of time, rounded up; 0: no limit. */
uint32_t weft_cgroup_cpus(const char *root);

/* The same for one group, from the kernel's words, "QUOTA PERIOD" in microseconds; a quota of "max"
 * or "-1", or one that is not understood, is no limit. */
uint32_t weft_cgroup_cpus_parse(const char *text);

/* Bytes that can still be had: limit less usage. Files in the page cache that nobody used lately
 * (inactive_file) count as free, since the kernel drops them first. UINT64_MAX: no limit. */
uint64_t weft_cgroup_memory(const char *root);

/* The most that could be had, by dropping all files from the page cache and swapping as much as
 * allowed (out of `swap_bytes`); *limit_out is the limit of the group that leaves the least.
 * UINT64_MAX, both: no limit. */
uint64_t weft_cgroup_memory_most(const char *root, uint64_t swap_bytes, uint64_t *limit_out);

#endif
