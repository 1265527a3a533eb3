/* The system calls are made here and not by libnuma, which reads sysfs for a millisecond whenever a
 * process that is linked with it starts. */
#include "base/numa.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/check.h"
#include "base/cpu.h"
#include "base/log.h"
#include "base/parse.h"

#define NODES "/sys/devices/system/node"

_Static_assert(WEFT_NUMA_NODES_MAX == 64, "a bit each");
_Static_assert(sizeof(unsigned long) == sizeof(uint64_t), "the kernel's masks have such words");

/* A file of one list, such as "0-3,8", or of an empty line. False: it cannot be read, or has a number
 * beyond those of a cpu_set_t. */
static bool read_list(const char *root, const char *name, cpu_set_t *out) {
    char path[512], line[8192];
    CPU_ZERO(out);
    int len = snprintf(path, sizeof path, "%s" NODES "/%s", root, name);
    FILE *f = len > 0 && (size_t)len < sizeof path ? fopen(path, "re") : NULL;
    if (!f) return false;
    bool ok = fgets(line, sizeof line, f) != NULL;
    size_t n = ok ? strcspn(line, "\n") : 0;
    if (n > 0) ok = !weft_cpu_parse_list(line, n, out);
    (void)fclose(f);
    return ok;
}

/* The nodes that a cpuset leaves this process. False: the system does not tell. */
static bool read_allowed(const char *root, cpu_set_t *out) {
    static const char key[] = "Mems_allowed_list:";
    char path[512], line[8192];
    bool ok = false;
    (void)snprintf(path, sizeof path, "%s/proc/self/status", root);
    FILE *f = fopen(path, "re");
    if (!f) return false;
    while (!ok && fgets(line, sizeof line, f)) {
        if (strncmp(line, key, strlen(key)) != 0) continue;
        const char *list = line + strlen(key);
        list += strspn(list, " \t");
        ok = !weft_cpu_parse_list(list, strcspn(list, "\n"), out);
    }
    (void)fclose(f);
    return ok;
}

static void read_machine(const char *root, struct weft_numa *numa) {
    cpu_set_t online, allowed, has_memory, cpus;
    const struct weft_numa one = {.n_nodes = 1, .nodes = {{.memory = 1}}};
    *numa = one;
    bool is_one = !read_list(root, "online", &online) || CPU_COUNT(&online) <= 1;
    for (size_t id = WEFT_NUMA_NODES_MAX; id < CPU_SETSIZE; id++)
        is_one = is_one || CPU_ISSET(id, &online);
    if (is_one) return;
    bool is_bound = read_allowed(root, &allowed);
    bool knows_memory = read_list(root, "has_memory", &has_memory) && CPU_COUNT(&has_memory) > 0;
    uint32_t n = 0;
    for (uint32_t id = 0; id < WEFT_NUMA_NODES_MAX; id++) {
        char name[32];
        (void)snprintf(name, sizeof name, "node%u/cpulist", id);
        if (!CPU_ISSET(id, &online)) continue;
        if (!read_list(root, name, &cpus)) { /* whose CPUs are those that no other node has? */
            *numa = one;
            return;
        }
        if (CPU_COUNT(&cpus) == 0) continue; /* memory alone */
        bool is_usable =
            (!is_bound || CPU_ISSET(id, &allowed)) && (!knows_memory || CPU_ISSET(id, &has_memory));
        numa->nodes[n++] = (struct weft_numa_node){is_usable ? 1ull << id : 0, cpus};
    }
    if (n > 0) numa->n_nodes = n;
}

/* "4-7@1", of `len` bytes; "4-7" has the memory of the real node of its first CPU. */
static bool parse_fake_node(const char *text, size_t len, const struct weft_numa *real,
                            struct weft_numa_node *out) {
    const char *at = memchr(text, '@', len);
    size_t list_len = at ? (size_t)(at - text) : len;
    if (weft_cpu_parse_list(text, list_len, &out->cpus)) return false;
    uint32_t first = 0;
    while (!CPU_ISSET(first, &out->cpus))
        first++;
    out->memory = real->nodes[weft_numa_node_of(real, first)].memory;
    if (!at) return true;
    char number[8];
    uint64_t id = 0;
    (void)snprintf(number, sizeof number, "%.*s", (int)(len - list_len - 1), at + 1);
    if (len - list_len > sizeof number || weft_parse_u64(number, WEFT_NUMA_NODES_MAX - 1, &id))
        return false;
    out->memory = 1ull << id;
    return true;
}

static bool parse_fake(const char *text, const struct weft_numa *real, struct weft_numa *out) {
    *out = (struct weft_numa){0};
    for (;;) {
        size_t len = strcspn(text, "/");
        if (out->n_nodes == WEFT_NUMA_NODES_MAX) return false;
        if (!parse_fake_node(text, len, real, &out->nodes[out->n_nodes++])) return false;
        if (!text[len]) return true;
        text += len + 1;
    }
}

void weft_numa_read(const char *root, struct weft_numa *numa) {
    struct weft_numa real;
    const char *fake = getenv("WEFT_TEST_NUMA");
    read_machine(root, numa);
    if (!fake || !*fake) return;
    real = *numa;
    if (parse_fake(fake, &real, numa)) return;
    weft_warn("WEFT_TEST_NUMA is lists of CPUs such as 0-3/4-7, not \"%s\"", fake);
    *numa = real;
}

uint32_t weft_numa_node_of(const struct weft_numa *numa, uint32_t cpu) {
    WEFT_ASSERT(numa->n_nodes >= 1 && numa->n_nodes <= WEFT_NUMA_NODES_MAX);
    for (uint32_t i = 0; i < numa->n_nodes; i++) {
        if (cpu < CPU_SETSIZE && CPU_ISSET(cpu, &numa->nodes[i].cpus)) return i;
    }
    return 0;
}

uint64_t weft_numa_home(const struct weft_numa *numa, const uint32_t *cpus, uint32_t n_cpus) {
    bool is_of[WEFT_NUMA_NODES_MAX] = {false};
    uint64_t home = 0;
    uint32_t n_nodes = 0;
    for (uint32_t i = 0; i < n_cpus; i++) {
        uint32_t node = weft_numa_node_of(numa, cpus[i]);
        n_nodes += !is_of[node];
        is_of[node] = true;
        home |= numa->nodes[node].memory;
    }
    return n_nodes < numa->n_nodes ? home : 0;
}

/* Of the kernel's policies this one goes on where the nodes are full, and before that has their page
 * cache dropped. Kernels before 5.15 lack it, and have one that does so for a single node. */
int weft_numa_prefer(uint64_t home, void *base, size_t bytes) {
    const unsigned long mask[2] = {home, 0}, n_bits = WEFT_NUMA_NODES_MAX + 1; /* one is not read */
    const unsigned long many = MPOL_PREFERRED_MANY, one = MPOL_PREFERRED;
    WEFT_ASSERT(home != 0);
    if (syscall(SYS_mbind, base, bytes, many, mask, n_bits, 0ul) == 0) return 0;
    if (errno != EINVAL || (home & (home - 1)) != 0) return errno;
    return syscall(SYS_mbind, base, bytes, one, mask, n_bits, 0ul) == 0 ? 0 : errno;
}

int weft_numa_locate(void **pages, size_t n_pages, int *nodes_out) {
    const long self = 0, flags = 0;
    return syscall(SYS_move_pages, self, n_pages, pages, NULL, nodes_out, flags) >= 0 ? 0 : errno;
}
