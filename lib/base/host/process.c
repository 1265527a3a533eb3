#include "base/process.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define FD_FOLDER "/proc/self/fd"

/* Newer kernels tell the number as the folder's size. The count has ".", ".." and the folder's own
 * descriptor, which are none of ours. */
uint32_t weft_process_open_files(void) {
    struct stat st;
    if (stat(FD_FOLDER, &st) == 0 && st.st_size > 0) return (uint32_t)st.st_size;
    DIR *dir = opendir(FD_FOLDER);
    if (!dir) return 0;
    uint32_t n = 0;
    while (readdir(dir))
        n++;
    (void)closedir(dir);
    return n > 3 ? n - 3 : 0;
}

static double seconds(const struct timeval *time) {
    return (double)time->tv_sec + (double)time->tv_usec * 1e-6;
}

void weft_process_read(struct weft_process *out) {
    struct rusage usage;
    struct rlimit limit;
    *out = (struct weft_process){.open_files = weft_process_open_files()};
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        out->cpu_seconds = seconds(&usage.ru_utime) + seconds(&usage.ru_stime);
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    out->max_files = limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
}
