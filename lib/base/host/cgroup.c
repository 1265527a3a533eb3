#include "base/cgroup.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"

enum { PATH_BYTES = 4096 };

/* ----------------------------------------------------------------------------------- files --- */

/* False: it cannot be read, or is empty. A longer line is cut. */
static bool read_line(const char *folder, const char *name, char *line, size_t line_bytes) {
    char path[PATH_BYTES + 64];
    int len = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (len < 0 || (size_t)len >= sizeof path) return false;
    FILE *f = fopen(path, "re");
    if (!f) return false;
    bool ok = fgets(line, (int)line_bytes, f) != NULL;
    (void)fclose(f);
    if (ok) line[strcspn(line, "\n")] = '\0';
    return ok;
}

/* False for "max", too. */
static bool read_number(const char *folder, const char *name, uint64_t *out) {
    char line[64];
    return read_line(folder, name, line, sizeof line) && !weft_parse_u64(line, UINT64_MAX, out);
}

/* The number after `key` in a file of "key number" lines; 0: none. */
static uint64_t read_stat(const char *folder, const char *name, const char *key) {
    char path[PATH_BYTES + 64], line[256], word[64];
    uint64_t value = 0, found = 0;
    int len = snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = len > 0 && (size_t)len < sizeof path ? fopen(path, "re") : NULL;
    if (!f) return 0;
    while (found == 0 && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%63s %" SCNu64, word, &value) == 2 && strcmp(word, key) == 0)
            found = value;
    }
    (void)fclose(f);
    return found;
}

/* ---------------------------------------------------------------------------------- groups --- */

/* "cpu" is one of "cpu,cpuacct". */
static bool lists(const char *controllers, const char *wanted) {
    size_t len = strlen(wanted);
    for (const char *at = controllers; *at; at += strcspn(at, ","), at += *at == ',') {
        if (strcspn(at, ",") == len && strncmp(at, wanted, len) == 0) return true;
    }
    return false;
}

/* "5:cpu,cpuacct:/a/b" has the path "/a/b" for "cpu"; v2's line is "0::/a/b", its controller "".
 * Writes "" if the line is about another, or about a group outside of this process's view. */
static bool take_path(char *line, const char *controller, char *path_out) {
    char *controllers = strchr(line, ':');
    char *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path || path[1] != '/' || strstr(path, "/..")) return false;
    *path++ = '\0';
    controllers++;
    bool is_wanted = *controller ? lists(controllers, controller) : *controllers == '\0';
    if (!is_wanted) return false;
    path[strcspn(path, "\n")] = '\0';
    memcpy(path_out, path, strlen(path) + 1);
    return true;
}

/* The path of our group in the hierarchy of `controller`; "" (the root) if none is listed. */
static void own_path(const char *root, const char *controller, char path_out[PATH_BYTES]) {
    char name[PATH_BYTES], line[PATH_BYTES];
    path_out[0] = '\0';
    (void)snprintf(name, sizeof name, "%s/proc/self/cgroup", root);
    FILE *f = fopen(name, "re");
    if (!f) return;
    while (fgets(line, sizeof line, f)) {
        if (take_path(line, controller, path_out)) break;
    }
    (void)fclose(f);
}

/* Looks at one group and lowers the least value so far, which `ctx` keeps. */
typedef void visit_fn(const char *folder, void *ctx);

/* From our own group up to the root of its hierarchy. */
static void visit_groups(const char *root, const char *controller, visit_fn *visit, void *ctx) {
    char path[PATH_BYTES], folder[2 * PATH_BYTES];
    own_path(root, controller, path);
    for (;;) {
        char *last = strrchr(path, '/');
        if (last && last[1] == '\0') { /* "/", or a slash at the end */
            *last = '\0';
            continue;
        }
        int len = snprintf(folder, sizeof folder, "%s/sys/fs/cgroup%s%s%s", root,
                           *controller ? "/" : "", controller, path);
        if (len > 0 && len < PATH_BYTES) visit(folder, ctx);
        if (!last) return;
        *last = '\0';
    }
}

/* ------------------------------------------------------------------------------------ CPUs --- */

uint32_t weft_cgroup_cpus_parse(const char *text) {
    char quota_text[24], period_text[24];
    uint64_t quota, period;
    if (sscanf(text, "%23s %23s", quota_text, period_text) != 2) return 0;
    if (weft_parse_u64(quota_text, INT64_MAX, &quota)) return 0; /* "max", "-1" */
    if (weft_parse_u64(period_text, INT64_MAX, &period) || period == 0) return 0;
    uint64_t n_cpus = quota / period + (quota % period != 0);
    return n_cpus < UINT32_MAX ? (uint32_t)n_cpus : UINT32_MAX;
}

static void note_cpus(const char *text, uint32_t *least) {
    uint32_t n = weft_cgroup_cpus_parse(text);
    if (n > 0 && (*least == 0 || n < *least)) *least = n;
}

static void visit_cpus_v2(const char *folder, void *ctx) {
    char line[64];
    if (read_line(folder, "cpu.max", line, sizeof line)) note_cpus(line, ctx);
}

static void visit_cpus_v1(const char *folder, void *ctx) {
    char quota[24], period[24], line[64];
    if (!read_line(folder, "cpu.cfs_quota_us", quota, sizeof quota) ||
        !read_line(folder, "cpu.cfs_period_us", period, sizeof period))
        return;
    (void)snprintf(line, sizeof line, "%s %s", quota, period);
    note_cpus(line, ctx);
}

uint32_t weft_cgroup_cpus(const char *root) {
    uint32_t least = 0;
    visit_groups(root, "", visit_cpus_v2, &least);
    visit_groups(root, "cpu", visit_cpus_v1, &least);
    return least;
}

/* ---------------------------------------------------------------------------------- memory --- */

struct memory {
    uint64_t swap_bytes;  /* of the machine, free */
    uint64_t left;        /* the least of all groups */
    uint64_t most, limit; /* those of the group whose `most` is the least */
};

static uint64_t less(uint64_t bytes, uint64_t taken) {
    return bytes > taken ? bytes - taken : 0;
}

/* `idle` and `busy`: files in the page cache, of which the idle ones go first. */
static void note_memory(struct memory *memory, uint64_t limit, uint64_t usage, uint64_t idle,
                        uint64_t busy, uint64_t swap) {
    uint64_t left = less(limit, less(usage, idle));
    uint64_t most = less(limit, less(usage, idle + busy)) + swap;
    if (left < memory->left) memory->left = left;
    if (most >= memory->most) return;
    memory->most = most;
    memory->limit = limit;
}

static void visit_memory_v2(const char *folder, void *ctx) {
    struct memory *memory = ctx;
    uint64_t limit, usage, swap_max, swap_used = 0, swap = memory->swap_bytes;
    if (!read_number(folder, "memory.max", &limit)) return;
    if (!read_number(folder, "memory.current", &usage)) return;
    (void)read_number(folder, "memory.swap.current", &swap_used);
    if (read_number(folder, "memory.swap.max", &swap_max) && less(swap_max, swap_used) < swap)
        swap = less(swap_max, swap_used);
    note_memory(memory, limit, usage, read_stat(folder, "memory.stat", "inactive_file"),
                read_stat(folder, "memory.stat", "active_file"), swap);
}

/* "total_" counts the groups below, as usage does. No limit is a number near 2^63. */
static void visit_memory_v1(const char *folder, void *ctx) {
    struct memory *memory = ctx;
    uint64_t limit, usage;
    if (!read_number(folder, "memory.limit_in_bytes", &limit) || limit > INT64_MAX / 2) return;
    if (!read_number(folder, "memory.usage_in_bytes", &usage)) return;
    note_memory(memory, limit, usage, read_stat(folder, "memory.stat", "total_inactive_file"),
                read_stat(folder, "memory.stat", "total_active_file"), memory->swap_bytes);
}

static struct memory read_memory(const char *root, uint64_t swap_bytes) {
    struct memory memory = {swap_bytes, UINT64_MAX, UINT64_MAX, UINT64_MAX};
    visit_groups(root, "", visit_memory_v2, &memory);
    visit_groups(root, "memory", visit_memory_v1, &memory);
    return memory;
}

uint64_t weft_cgroup_memory(const char *root) {
    return read_memory(root, 0).left;
}

uint64_t weft_cgroup_memory_most(const char *root, uint64_t swap_bytes, uint64_t *limit_out) {
    struct memory memory = read_memory(root, swap_bytes);
    *limit_out = memory.limit;
    return memory.most;
}
