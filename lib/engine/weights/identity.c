/* Which files a model is, without reading them: device, inode, size, modification time. */
#include "weights/identity.h"

#include <dirent.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

static uint64_t stat_hash(const char *name, const struct stat *st) {
    uint64_t facts[5] = {(uint64_t)st->st_dev, (uint64_t)st->st_ino, (uint64_t)st->st_size,
                         (uint64_t)st->st_mtim.tv_sec, (uint64_t)st->st_mtim.tv_nsec};
    return XXH64(name, strlen(name), XXH64(facts, sizeof facts, 0));
}

static bool names_weights(const char *name) {
    const char *dot = strrchr(name, '.');
    return strcmp(name, "config.json") == 0 || (dot && strcmp(dot, ".safetensors") == 0);
}

/* A sum, so that the order of the entries does not matter. 0: cannot be told. */
static uint64_t folder_identity(const char *path) {
    DIR *dir = opendir(path);
    if (!dir) return 0;
    uint64_t sum = 0;
    const struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        struct stat st;
        if (!names_weights(entry->d_name)) continue;
        if (fstatat(dirfd(dir), entry->d_name, &st, 0) == 0) sum += stat_hash(entry->d_name, &st);
    }
    (void)closedir(dir);
    return sum;
}

/* The same for a GGUF file, or for the parts of one. */
static uint64_t files_identity(const weft_model *model) {
    const char *path;
    uint64_t sum = 0;
    for (size_t i = 0; (path = weft_model_file(model, i)) != NULL; i++) {
        struct stat st;
        if (stat(path, &st) != 0) return 0;
        sum += stat_hash("", &st);
    }
    return sum;
}

uint64_t wefti_weights_identity(const weft_model *model, const char *path) {
    struct stat st;
    if (stat(path, &st) != 0) return 0;
    if (S_ISDIR(st.st_mode)) return folder_identity(path);
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    if (strcmp(name, "config.json") != 0) return files_identity(model);
    char folder[4096];
    size_t len = slash ? (size_t)(slash - path) : 0;
    if (len >= sizeof folder) return 0;
    memcpy(folder, path, len);
    folder[len] = '\0';
    return folder_identity(len ? folder : slash ? "/" : ".");
}
