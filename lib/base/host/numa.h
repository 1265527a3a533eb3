/* base/numa — the nodes of this machine, each some CPUs and the memory near them; and where pages
 * lie.
 *
 * Nodes are read from sysfs, which a container shows even where it refuses the system calls; the
 * kernel's list of allowed memory (cpuset) leaves out nodes whose memory is not to be had. Which
 * CPUs this process may use is for base/cpu.h to say.
 *
 * WEFT_TEST_NUMA="0-3/4-7" takes the machine's place, for tests: a node per list of CPUs. The memory
 * of each is that of the real node of its first CPU; in "0-3/4-7@9" the second one's is node 9's,
 * which need not be there. */
#ifndef WEFT_BASE_NUMA_H
#define WEFT_BASE_NUMA_H

#include <sched.h>
#include <stddef.h>
#include <stdint.h>

/* A machine with more, with higher numbers, or with CPUs beyond WEFT_CPUS_MAX counts as one node. */
#define WEFT_NUMA_NODES_MAX 64

struct weft_numa_node {
    uint64_t memory; /* bits of the kernel's nodes; 0: none that may be used */
    cpu_set_t cpus;  /* of the machine */
};

struct weft_numa {
    uint32_t n_nodes; /* those with CPUs; at least 1 */
    struct weft_numa_node nodes[WEFT_NUMA_NODES_MAX];
};

/* `root` stands before every path: "" outside of tests. */
void weft_numa_read(const char *root, struct weft_numa *numa_out);

/* The index of the node that has the CPU; 0 for one that no node has. */
uint32_t weft_numa_node_of(const struct weft_numa *numa, uint32_t cpu);

/* The memory of the nodes that these CPUs are of, as bits. 0: there is nothing to choose, because
 * the CPUs are of all nodes, or none of that memory may be used. */
uint64_t weft_numa_home(const struct weft_numa *numa, const uint32_t *cpus, uint32_t n_cpus);

/* Pages of this mapping that come from now on are taken from `home` while it has room, and then from
 * other nodes. `base` is a page's begin. 0, or an errno: refused (EPERM, ENOSYS), or no such node
 * (EINVAL). */
int weft_numa_prefer(uint64_t home, void *base, size_t bytes);

/* nodes_out[i]: the node that page i lies on, or something negative if it is not resident. 0, or an
 * errno: refused. */
int weft_numa_locate(void **pages, size_t n_pages, int *nodes_out);

#endif
