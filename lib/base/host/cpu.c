#include "base/cpu.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cgroup.h"

_Static_assert(WEFT_CPUS_MAX == CPU_SETSIZE, "each has its place");

uint32_t weft_cpu_allowed(uint32_t cpus_out[WEFT_CPUS_MAX]) {
    cpu_set_t sets[8]; /* where more CPUs are possible than one holds, the kernel refuses less */
    uint32_t n = 0;
    if (sched_getaffinity(0, sizeof sets, sets) == 0) {
        for (uint32_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
            if (CPU_ISSET(cpu, &sets[0])) cpus_out[n++] = cpu;
        }
    }
    if (n == 0) cpus_out[n++] = 0;
    return n;
}

/* A CPU's number at the beginning of the text, at most four digits; false: there is none. */
static bool take_number(const char **text, size_t *len, uint32_t *out) {
    uint32_t n_digits = 0;
    *out = 0;
    for (; *len > 0 && **text >= '0' && **text <= '9' && n_digits < 4; n_digits++) {
        *out = *out * 10 + (uint32_t)(**text - '0');
        ++*text;
        --*len;
    }
    return n_digits > 0 && *out < WEFT_CPUS_MAX;
}

static bool take_char(const char **text, size_t *len, char c) {
    if (*len == 0 || **text != c) return false;
    ++*text;
    --*len;
    return true;
}

weft_err weft_cpu_parse_list(const char *text, size_t len, cpu_set_t *cpus) {
    CPU_ZERO(cpus);
    do {
        uint32_t first, last;
        if (!take_number(&text, &len, &first)) return WEFT_E_INVAL;
        last = first;
        if (take_char(&text, &len, '-') && !take_number(&text, &len, &last)) return WEFT_E_INVAL;
        if (last < first) return WEFT_E_INVAL;
        for (uint32_t cpu = first; cpu <= last; cpu++)
            CPU_SET(cpu, cpus);
    } while (take_char(&text, &len, ','));
    return len == 0 ? WEFT_OK : WEFT_E_INVAL;
}

bool weft_cpu_pin(uint32_t cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (cpu >= CPU_SETSIZE) return false;
    CPU_SET(cpu, &set);
    return sched_setaffinity(0, sizeof set, &set) == 0; /* 0: the calling thread */
}

uint32_t weft_cpu_quota(void) {
    return weft_cgroup_cpus("");
}

/* Bytes by a line of /proc/meminfo; 0 where it does not tell. */
static uint64_t meminfo(const char *name) {
    FILE *f = fopen("/proc/meminfo", "re");
    if (!f) return 0;
    char line[256], word[64];
    uint64_t kib = 0, found = 0;
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%63[^:]: %" SCNu64 " kB", word, &kib) != 2 || strcmp(word, name) != 0)
            continue;
        found = kib;
        break;
    }
    (void)fclose(f);
    return found * 1024;
}

uint64_t weft_mem_available_bytes(void) {
    uint64_t machine = meminfo("MemAvailable"), cgroups = weft_cgroup_memory("");
    if (machine == 0) return cgroups < UINT64_MAX ? cgroups : 0;
    return cgroups < machine ? cgroups : machine;
}

struct weft_mem_room weft_mem_room(void) {
    uint64_t swap = meminfo("SwapFree"), limit = 0;
    struct weft_mem_room room = {meminfo("MemAvailable"), meminfo("MemTotal"), false};
    uint64_t most = weft_cgroup_memory_most("", swap, &limit);
    if (room.most_bytes > 0) room.most_bytes += swap;
    if (most < UINT64_MAX && (room.most_bytes == 0 || most < room.most_bytes))
        room = (struct weft_mem_room){most, limit, true};
    return room;
}

uint64_t weft_mem_resident_bytes(void) {
    FILE *f = fopen("/proc/self/statm", "re");
    if (!f) return 0;
    uint64_t size = 0, resident = 0;
    bool ok = fscanf(f, "%" SCNu64 " %" SCNu64, &size, &resident) == 2;
    (void)fclose(f);
    return ok ? resident * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}
