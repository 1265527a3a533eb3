#include "base/cpu.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/parse.h"

uint32_t weft_cpu_allowed(uint32_t cpus_out[WEFT_CPUS_MAX]) {
    cpu_set_t set;
    CPU_ZERO(&set);
    uint32_t n = 0;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        for (uint32_t cpu = 0; cpu < CPU_SETSIZE && n < WEFT_CPUS_MAX; cpu++) {
            if (CPU_ISSET(cpu, &set)) cpus_out[n++] = cpu;
        }
    }
    if (n == 0) cpus_out[n++] = 0;
    return n;
}

bool weft_cpu_pin(uint32_t cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (cpu >= CPU_SETSIZE) return false;
    CPU_SET(cpu, &set);
    return sched_setaffinity(0, sizeof set, &set) == 0; /* 0: the calling thread */
}

/* The first number of a file; false when it has none ("max") or cannot be read. */
static bool read_u64(const char *path, uint64_t *out) {
    FILE *f = fopen(path, "re");
    if (!f) return false;
    bool ok = fscanf(f, "%" SCNu64, out) == 1;
    (void)fclose(f);
    return ok;
}

uint32_t weft_cpu_quota_parse(const char *text) {
    char quota_text[24], period_text[24];
    uint64_t quota, period;
    if (sscanf(text, "%23s %23s", quota_text, period_text) != 2) return 0;
    if (weft_parse_u64(quota_text, INT64_MAX, &quota)) return 0; /* "max", "-1" */
    if (weft_parse_u64(period_text, INT64_MAX, &period) || period == 0) return 0;
    uint64_t n_cpus = quota / period + (quota % period != 0);
    return n_cpus < UINT32_MAX ? (uint32_t)n_cpus : UINT32_MAX;
}

static bool read_line(const char *path, char *line, int line_bytes) {
    FILE *f = fopen(path, "re");
    if (!f) return false;
    bool ok = fgets(line, line_bytes, f) != NULL;
    (void)fclose(f);
    return ok;
}

uint32_t weft_cpu_quota(void) {
    char line[64], quota[24], period[24];
    if (read_line("/sys/fs/cgroup/cpu.max", line, sizeof line)) return weft_cpu_quota_parse(line);
    if (!read_line("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", quota, sizeof quota)) return 0;
    if (!read_line("/sys/fs/cgroup/cpu/cpu.cfs_period_us", period, sizeof period)) return 0;
    (void)snprintf(line, sizeof line, "%s %s", quota, period);
    return weft_cpu_quota_parse(line);
}

static uint64_t meminfo_available(void) {
    FILE *f = fopen("/proc/meminfo", "re");
    if (!f) return 0;
    char line[256];
    uint64_t kib = 0;
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "MemAvailable: %" SCNu64 " kB", &kib) == 1) break;
    }
    (void)fclose(f);
    return kib * 1024;
}

uint64_t weft_mem_available_bytes(void) {
    static const char *const cgroups[][2] = {
        {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"},
        {"/sys/fs/cgroup/memory/memory.limit_in_bytes",
         "/sys/fs/cgroup/memory/memory.usage_in_bytes"},
    };
    uint64_t available = meminfo_available();
    for (size_t i = 0; i < 2; i++) {
        uint64_t limit, used;
        if (!read_u64(cgroups[i][0], &limit) || !read_u64(cgroups[i][1], &used)) continue;
        uint64_t left = limit > used ? limit - used : 0;
        if (available == 0 || left < available) available = left;
    }
    return available;
}

uint64_t weft_mem_resident_bytes(void) {
    FILE *f = fopen("/proc/self/statm", "re");
    if (!f) return 0;
    uint64_t size = 0, resident = 0;
    bool ok = fscanf(f, "%" SCNu64 " %" SCNu64, &size, &resident) == 2;
    (void)fclose(f);
    return ok ? resident * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}
