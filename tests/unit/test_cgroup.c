/* Limits of control groups, read from trees of files made up for the purpose. */
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
#include <sys/stat.h>
#include <unistd.h>

#include "base/cgroup.h"

static char root[64];

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

static int make_root(void **state) {
    (void)state;
    (void)snprintf(root, sizeof root, "/tmp/weft-cgroup-XXXXXX");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

static int remove_root(void **state) {
    (void)state;
    return nftw(root, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

static void a_quota_is_rounded_up_to_whole_cpus(void **state) {
    (void)state;
    assert_int_equal(weft_cgroup_cpus_parse("200000 100000\n"), 2);
    assert_int_equal(weft_cgroup_cpus_parse("150000 100000"), 2);
    assert_int_equal(weft_cgroup_cpus_parse("100001 100000"), 2);
    assert_int_equal(weft_cgroup_cpus_parse("100000 100000"), 1);
    assert_int_equal(weft_cgroup_cpus_parse("1000 100000"), 1);
    assert_int_equal(weft_cgroup_cpus_parse("6400000\n 100000\n"), 64); /* the two files of v1 */
    assert_true(weft_cgroup_cpus_parse("9223372036854775807 1") == UINT32_MAX);
}

static void no_quota_and_nonsense_are_no_limit(void **state) {
    (void)state;
    static const char *const texts[] = {
        "max 100000\n",
        "-1\n 100000\n",
        "",
        "max",
        "200000",
        "200000 0",
        "200000 -1",
        "2e5 1e5",
        "\n\n",
        "200000 max",
        "0x10 0x10",
        "0 100000",
        "a b c",
        " ",
        "99999999999999999999999999 1",
        "1 99999999999999999999999999",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_int_equal(weft_cgroup_cpus_parse(texts[i]), 0);
}

/* ------------------------------------------------------------------------------------- v2 --- */

static void put_v2(const char *group, const char *max, const char *current, const char *stat) {
    char path[256];
    (void)snprintf(path, sizeof path, "sys/fs/cgroup%s/memory.max", group);
    put(path, max);
    (void)snprintf(path, sizeof path, "sys/fs/cgroup%s/memory.current", group);
    put(path, current);
    (void)snprintf(path, sizeof path, "sys/fs/cgroup%s/memory.stat", group);
    put(path, stat);
}

static void the_least_of_all_groups_above_counts(void **state) {
    (void)state;
    put("proc/self/cgroup", "0::/a.slice/b.service/c\n");
    put_v2("/a.slice", "1000000\n", "600000\n", "anon 1\ninactive_file 0\n");
    put_v2("/a.slice/b.service", "900000\n", "100000\n", "");
    put_v2("/a.slice/b.service/c", "max\n", "100000\n", "");
    put_v2("/other", "10\n", "10\n", ""); /* none of ours */
    assert_int_equal(weft_cgroup_memory(root), 400000);
    put("sys/fs/cgroup/a.slice/cpu.max", "max 100000\n");
    put("sys/fs/cgroup/a.slice/b.service/cpu.max", "350000 100000\n");
    put("sys/fs/cgroup/a.slice/b.service/c/cpu.max", "800000 100000\n");
    put("sys/fs/cgroup/other/cpu.max", "100000 100000\n");
    assert_int_equal(weft_cgroup_cpus(root), 4);
}

static void cache_that_can_be_dropped_is_not_used(void **state) {
    (void)state;
    put("proc/self/cgroup", "0::/\n");
    put_v2("", "1000\n", "900\n",
           "anon 100\nfile 800\nactive_file 100\ninactive_file 700\nunevictable 0\n");
    assert_int_equal(weft_cgroup_memory(root), 1000 - 900 + 700);
    put("sys/fs/cgroup/memory.stat", "inactive_file 5000\n"); /* read a moment later: more */
    assert_int_equal(weft_cgroup_memory(root), 1000);
    put("sys/fs/cgroup/memory.stat", "total_inactive_file 700\ninactive_file_ 700\n");
    assert_int_equal(weft_cgroup_memory(root), 100);
    put("sys/fs/cgroup/memory.current", "1200\n"); /* over the limit for a moment */
    assert_int_equal(weft_cgroup_memory(root), 0);
}

static void the_most_counts_all_files_and_the_swap_that_is_allowed(void **state) {
    (void)state;
    uint64_t limit = 0;
    put("proc/self/cgroup", "0::/a/b\n");
    put_v2("/a", "2000\n", "900\n", "active_file 100\ninactive_file 200\n");
    put_v2("/a/b", "1000\n", "900\n", "active_file 100\ninactive_file 700\n");
    assert_int_equal(weft_cgroup_memory_most(root, 0, &limit), 1000 - 900 + 800);
    assert_int_equal(limit, 1000);
    assert_int_equal(weft_cgroup_memory_most(root, 50, &limit), 950);
    put("sys/fs/cgroup/a/b/memory.swap.max", "30\n");
    put("sys/fs/cgroup/a/b/memory.swap.current", "10\n");
    assert_int_equal(weft_cgroup_memory_most(root, 50, &limit), 920);
    put_v2("/a", "1000\n", "990\n", "inactive_file 0\n");
    assert_int_equal(weft_cgroup_memory_most(root, 0, &limit), 10); /* what both are in */
}

static void no_group_and_no_limit_are_no_limit(void **state) {
    (void)state;
    uint64_t limit = 0;
    assert_true(weft_cgroup_memory(root) == UINT64_MAX);
    assert_true(weft_cgroup_memory_most(root, 7, &limit) == UINT64_MAX);
    assert_true(limit == UINT64_MAX);
    assert_int_equal(weft_cgroup_cpus(root), 0);
    put("proc/self/cgroup", "0::/a\n");
    put_v2("/a", "max\n", "5\n", "");
    assert_true(weft_cgroup_memory(root) == UINT64_MAX);
    put_v2("/a", "nonsense\n", "5\n", "");
    assert_true(weft_cgroup_memory(root) == UINT64_MAX);
    put_v2("/a", "", "", "");
    assert_true(weft_cgroup_memory(root) == UINT64_MAX);
}

/* Inside a container the path may be the host's, while the files there are those of the
 * container's own root. */
static void a_path_that_is_not_there_falls_back_to_the_root(void **state) {
    (void)state;
    put("proc/self/cgroup", "0::/host/docker/1234\n");
    put_v2("", "1000\n", "300\n", "");
    put("sys/fs/cgroup/cpu.max", "150000 100000\n");
    assert_int_equal(weft_cgroup_memory(root), 700);
    assert_int_equal(weft_cgroup_cpus(root), 2);
    put("proc/self/cgroup", "0::/../../elsewhere\n"); /* outside of our namespace */
    assert_int_equal(weft_cgroup_memory(root), 700);
    put("proc/self/cgroup", "rubbish\n:\n::\n0:\n0::\n0::relative\n");
    assert_int_equal(weft_cgroup_memory(root), 700);
}

static void a_path_of_any_length_does_no_harm(void **state) {
    (void)state;
    char *line = malloc(20000);
    assert_non_null(line);
    for (size_t len = 3900; len < 12000; len += 397) {
        (void)snprintf(line, 20000, "0::");
        for (size_t i = 3; i < len; i++)
            line[i] = i % 8 == 3 ? '/' : 'a';
        line[len] = '\0';
        put("proc/self/cgroup", line);
        put_v2("", "1000\n", "300\n", "");
        assert_int_equal(weft_cgroup_memory(root), 700);
    }
    free(line);
}

/* ------------------------------------------------------------------------------------- v1 --- */

static void put_v1(const char *group, const char *limit, const char *usage, const char *stat) {
    char path[256];
    (void)snprintf(path, sizeof path, "sys/fs/cgroup/memory%s/memory.limit_in_bytes", group);
    put(path, limit);
    (void)snprintf(path, sizeof path, "sys/fs/cgroup/memory%s/memory.usage_in_bytes", group);
    put(path, usage);
    (void)snprintf(path, sizeof path, "sys/fs/cgroup/memory%s/memory.stat", group);
    put(path, stat);
}

static void v1_has_a_hierarchy_for_each_controller(void **state) {
    (void)state;
    put("proc/self/cgroup", "12:cpuset:/x\n11:cpu,cpuacct:/c/d\n5:memory:/m/n\n"
                            "1:name=systemd:/user.slice\n0::/user.slice\n");
    put_v1("", "9223372036854771712\n", "123\n", "");
    put_v1("/m", "5000\n", "4000\n", "inactive_file 1\ntotal_inactive_file 1500\n");
    put_v1("/m/n", "9223372036854771712\n", "4000\n", "total_inactive_file 1500\n");
    put_v1("/x", "1\n", "1\n", "");
    assert_int_equal(weft_cgroup_memory(root), 2500);
    put("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    put("sys/fs/cgroup/cpu/c/cpu.cfs_quota_us", "250000\n");
    put("sys/fs/cgroup/cpu/c/cpu.cfs_period_us", "100000\n");
    put("sys/fs/cgroup/cpu/c/d/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu/c/d/cpu.cfs_period_us", "100000\n");
    put("sys/fs/cgroup/cpu/x/cpu.cfs_quota_us", "100000\n");
    put("sys/fs/cgroup/cpu/x/cpu.cfs_period_us", "100000\n");
    assert_int_equal(weft_cgroup_cpus(root), 3);
}

static void both_versions_at_once_both_count(void **state) {
    (void)state;
    put("proc/self/cgroup", "5:memory:/m\n0::/u\n");
    put_v1("/m", "5000\n", "1000\n", "");
    put_v2("/u", "3000\n", "1000\n", "");
    assert_int_equal(weft_cgroup_memory(root), 2000);
    put_v2("/u", "30000\n", "1000\n", "");
    assert_int_equal(weft_cgroup_memory(root), 4000);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, make_root, remove_root)

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_quota_is_rounded_up_to_whole_cpus),
        cmocka_unit_test(no_quota_and_nonsense_are_no_limit),
        CASE(the_least_of_all_groups_above_counts),
        CASE(cache_that_can_be_dropped_is_not_used),
        CASE(the_most_counts_all_files_and_the_swap_that_is_allowed),
        CASE(no_group_and_no_limit_are_no_limit),
        CASE(a_path_that_is_not_there_falls_back_to_the_root),
        CASE(a_path_of_any_length_does_no_harm),
        CASE(v1_has_a_hierarchy_for_each_controller),
        CASE(both_versions_at_once_both_count),
    };
    return cmocka_run_group_tests_name("cgroup", tests, NULL, NULL);
}
