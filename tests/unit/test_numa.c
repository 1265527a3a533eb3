/* Nodes, read from trees of files made up for the purpose, and faked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cpu.h"
#include "base/numa.h"

static char root[64];
static struct weft_numa numa;

/* Writes root/path, making its folders. */
static void put(const char *path, const char *text) {
    char full[512];
    (void)snprintf(full, sizeof full, "%s/%s", root, path);
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        assert_true(mkdir(full, 0700) == 0 || errno == EEXIST);
        *slash = '/';
    }
    FILE *f = fopen(full, "we");
    assert_non_null(f);
    (void)fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void put_node(uint32_t id, const char *cpus) {
    char path[128];
    (void)snprintf(path, sizeof path, "sys/devices/system/node/node%u/cpulist", id);
    put(path, cpus);
}

static int make_root(void **state) {
    (void)state;
    (void)unsetenv("WEFT_TEST_NUMA");
    (void)snprintf(root, sizeof root, "/tmp/weft-numa-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static int remove_root(void **state) {
    (void)state;
    (void)unsetenv("WEFT_TEST_NUMA");
    return nftw(root, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static void put_two_nodes(void) {
    put("sys/devices/system/node/online", "0-1\n");
    put("sys/devices/system/node/has_memory", "0-1\n");
    put("proc/self/status", "Name:\tx\nMems_allowed:\t3\nMems_allowed_list:\t0-1\nThreads:\t1\n");
    put_node(0, "0-3,8-11\n");
    put_node(1, "4-7,12-15\n");
}

static uint64_t home(uint32_t first, uint32_t last) {
    uint32_t cpus[64], n = 0;
    for (uint32_t cpu = first; cpu <= last; cpu++)
        cpus[n++] = cpu;
    return weft_numa_home(&numa, cpus, n);
}

static void lists_of_cpus_are_read_strictly(void **state) {
    (void)state;
    cpu_set_t cpus;
    assert_int_equal(weft_cpu_parse_list("0", 1, &cpus), WEFT_OK);
    assert_int_equal(CPU_COUNT(&cpus), 1);
    assert_int_equal(weft_cpu_parse_list("0-3,8,10-11/7", 11, &cpus), WEFT_OK);
    assert_int_equal(CPU_COUNT(&cpus), 7);
    assert_true(CPU_ISSET(11, &cpus) && !CPU_ISSET(9, &cpus));
    assert_int_equal(weft_cpu_parse_list("1023", 4, &cpus), WEFT_OK);
    static const char *const wrong[] = {
        "",   "-",    "a",    "0-",           "3-1", "1,",    ",1",  "1 ",
        " 1", "1,,2", "1024", "0-5000000000", "0x1", "1-2-3", "1/2", "99999999999999999999",
        "-1", "+1"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(weft_cpu_parse_list(wrong[i], strlen(wrong[i]), &cpus), WEFT_E_INVAL);
}

static void a_machine_that_tells_nothing_is_one_node(void **state) {
    (void)state;
    weft_numa_read(root, &numa);
    assert_int_equal(numa.n_nodes, 1);
    assert_int_equal(weft_numa_node_of(&numa, 0), 0);
    assert_int_equal(weft_numa_node_of(&numa, 5000), 0);
    assert_int_equal(home(0, 3), 0);
}

static void one_node_leaves_nothing_to_choose(void **state) {
    (void)state;
    put("sys/devices/system/node/online", "0\n");
    put_node(0, "0-7\n");
    weft_numa_read(root, &numa);
    assert_int_equal(numa.n_nodes, 1);
    assert_int_equal(home(0, 3), 0);
}

static void cpus_of_one_node_of_two_have_its_memory_as_home(void **state) {
    (void)state;
    put_two_nodes();
    weft_numa_read(root, &numa);
    assert_int_equal(numa.n_nodes, 2);
    assert_int_equal(weft_numa_node_of(&numa, 9), 0);
    assert_int_equal(weft_numa_node_of(&numa, 12), 1);
    assert_int_equal(home(0, 3), 1);
    assert_int_equal(home(5, 6), 2);
    assert_int_equal(home(2, 5), 0); /* they are of both */
}

static void memory_that_a_cpuset_forbids_is_no_home(void **state) {
    (void)state;
    put_two_nodes();
    put("proc/self/status", "Mems_allowed_list:\t0\n");
    weft_numa_read(root, &numa);
    assert_int_equal(home(0, 3), 1);
    assert_int_equal(home(4, 7), 0);
}

static void nodes_without_memory_or_cpus_are_no_home(void **state) {
    (void)state;
    put_two_nodes();
    put("sys/devices/system/node/online", "0-2\n");
    put("sys/devices/system/node/has_memory", "1-2\n");
    put_node(2, "\n"); /* memory alone */
    weft_numa_read(root, &numa);
    assert_int_equal(numa.n_nodes, 2);
    assert_int_equal(home(0, 3), 0);
    assert_int_equal(home(4, 7), 2);
}

static void nodes_with_high_numbers_count_as_one(void **state) {
    (void)state;
    put_two_nodes();
    put("sys/devices/system/node/online", "0-1,64\n");
    weft_numa_read(root, &numa);
    assert_int_equal(numa.n_nodes, 1);
}

static void nodes_with_more_cpus_than_we_count_are_one(void **state) {
    (void)state;
    static const char *const lists[] = {"1024-2047\n", "1000-1100\n"};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        put_two_nodes();
        put("sys/devices/system/node/online", "0-2\n");
        put_node(2, lists[i]);
        weft_numa_read(root, &numa);
        assert_int_equal(numa.n_nodes, 1);
        assert_int_equal(home(4, 7), 0); /* not node 0's, as it would be for CPU 1000 */
        assert_int_equal(home(1000, 1023), 0);
    }
}

static void a_fake_takes_the_machine_s_place(void **state) {
    (void)state;
    put_two_nodes();
    assert_int_equal(setenv("WEFT_TEST_NUMA", "0/1-2,5/6-7@9", 1), 0);
    weft_numa_read(root, &numa);
    assert_int_equal(numa.n_nodes, 3);
    assert_int_equal(weft_numa_node_of(&numa, 5), 1);
    assert_int_equal(weft_numa_node_of(&numa, 3), 0); /* of no node */
    assert_int_equal(home(0, 0), 1);
    assert_int_equal(home(1, 2), 1); /* of the real node of CPU 1 */
    assert_int_equal(home(6, 7), 1 << 9);
    assert_int_equal(home(5, 6), 1 | 1 << 9);
    assert_int_equal(home(0, 7), 0);
}

static void a_fake_that_makes_no_sense_is_passed_over(void **state) {
    (void)state;
    static const char *const wrong[] = {"/",      "0/",    "0//1", "0/1@",
                                        "0/1@64", "0/1@x", "0/a",  "0/1@1@2"};
    put_two_nodes();
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_equal(setenv("WEFT_TEST_NUMA", wrong[i], 1), 0);
        weft_numa_read(root, &numa);
        assert_int_equal(numa.n_nodes, 2);
        assert_int_equal(weft_numa_node_of(&numa, 9), 0);
    }
    assert_int_equal(setenv("WEFT_TEST_NUMA", "", 1), 0);
    weft_numa_read(root, &numa);
    assert_int_equal(numa.n_nodes, 2);
}

/* Where the system lets us, and knows of nodes. */
static void pages_lie_on_a_node_once_they_are_touched(void **state) {
    (void)state;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *base =
        mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(base != MAP_FAILED);
    int error = weft_numa_prefer(1ull << 63, base, 2 * page); /* none has so many */
    assert_true(error == EINVAL || error == EPERM || error == ENOSYS);
    error = weft_numa_prefer(1, base, 2 * page);
    assert_true(error == 0 || error == EINVAL || error == EPERM || error == ENOSYS);
    base[0] = 1;
    void *pages[2] = {base, base + page};
    int nodes[2] = {-1, -1};
    error = weft_numa_locate(pages, 2, nodes);
    if (error == 0) {
        assert_in_range(nodes[0], 0, 1023);
        assert_true(nodes[1] < 0);
    } else {
        assert_true(error == EPERM || error == ENOSYS);
        print_message("SKIPPED: move_pages is refused here: %s\n", strerror(error));
    }
    assert_int_equal(munmap(base, 2 * page), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_root, remove_root)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(lists_of_cpus_are_read_strictly),
        TEST(a_machine_that_tells_nothing_is_one_node),
        TEST(one_node_leaves_nothing_to_choose),
        TEST(cpus_of_one_node_of_two_have_its_memory_as_home),
        TEST(memory_that_a_cpuset_forbids_is_no_home),
        TEST(nodes_without_memory_or_cpus_are_no_home),
        TEST(nodes_with_high_numbers_count_as_one),
        TEST(nodes_with_more_cpus_than_we_count_are_one),
        TEST(a_fake_takes_the_machine_s_place),
        TEST(a_fake_that_makes_no_sense_is_passed_over),
        TEST(pages_lie_on_a_node_once_they_are_touched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
