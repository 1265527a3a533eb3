/* Writing packed files: the arena on disk, to be mapped as it is (open.c). The model module defines
 * and checks the rest of them (model.h, "packed files").
 *
 * Every thread packs a part into memory of its own and writes it to its place. A shared mapping of
 * the file would save a copy, but a full disk would then be a SIGBUS and not a sentence. The file
 * has no name, or one of its own, until it is whole and on disk. */
#include "weights/pack.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/minmax.h"
#include "runtime/memory.h"
#include "runtime/options.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the arena is in the machine's order");

struct file_out {
    const struct wefti_weights_plan *plan;
    int fd;
    const char *path; /* as asked for */
    char *temp;       /* the name it has meanwhile; NULL: none */
    bool replace;     /* any file at `path` by then */
    uint8_t *scratch; /* scratch_bytes per thread */
    size_t scratch_bytes;
    _Atomic int error; /* the first errno of a write */
};

static void put_part(void *ctx, const struct wefti_weights_item *item, uint32_t part,
                     uint32_t thread_idx) {
    struct file_out *out = ctx;
    if (out->error) return;
    uint8_t *from = out->scratch + thread_idx * out->scratch_bytes;
    size_t left = wefti_weights_pack_part(out->plan, item, part, thread_idx, from);
    WEFT_ASSERT(left <= out->scratch_bytes);
    off_t at = (off_t)wefti_weights_part_offset(item, part);
    while (left > 0) {
        ssize_t n = pwrite(out->fd, from, left, at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            int none = 0;
            (void)atomic_compare_exchange_strong(&out->error, &none, n < 0 ? errno : EIO);
            return;
        }
        from += n;
        left -= (size_t)n;
        at += n;
    }
}

static weft_err put_arena(struct file_out *out, const struct wefti_weights_plan *plan,
                          struct wefti_pool *pool, uint64_t *model_hash_out,
                          struct weft_errmsg *why) {
    for (size_t i = 0; i < plan->n_items; i++) {
        size_t bytes = wefti_weights_part_bytes_max(&plan->items[i]);
        if (bytes > out->scratch_bytes) out->scratch_bytes = bytes;
    }
    out->scratch_bytes = weft_round_up(out->scratch_bytes, 64);
    size_t all_bytes = out->scratch_bytes * wefti_pool_n_threads(pool);
    out->scratch = wefti_memory_map(all_bytes);
    if (!out->scratch) return weft_err_set(why, WEFT_E_NOMEM, "no memory to pack in");
    out->plan = plan;
    *model_hash_out = wefti_weights_pack_parts(plan, pool, put_part, out);
    wefti_memory_unmap(out->scratch, all_bytes);
    if (!out->error) return WEFT_OK;
    return weft_err_errno(why, out->error, "cannot write %s", out->path);
}

/* --------------------------------------------------------------------------------- the name --- */

static weft_err is_there(const char *path, struct weft_errmsg *why) {
    return weft_err_set(why, WEFT_E_EXISTS, "%s is there already: --force replaces it", path);
}

/* A file of the model's folder, but for one that was packed: the tokenizer, the configuration. */
static bool is_of_folder(const char *path, const char *model_path) {
    struct weft_model_place model = {0}, out = {0};
    struct weft_errmsg why;
    struct stat folder, st;
    char *copy = strdup(path);
    bool is_packed = weft_model_locate(path, &out, &why) == WEFT_OK && out.packed;
    bool is_in = copy && weft_model_locate(model_path, &model, &why) == WEFT_OK &&
                 model.format == WEFT_MODEL_HF && stat(dirname(copy), &st) == 0 &&
                 stat(model.path, &folder) == 0 && st.st_dev == folder.st_dev &&
                 st.st_ino == folder.st_ino;
    free(copy);
    weft_model_place_fini(&model);
    weft_model_place_fini(&out);
    return is_in && !is_packed;
}

static weft_err check_out(const char *path, const char *model_path, const weft_model *model,
                          bool replace, struct weft_errmsg *why) {
    struct stat st, model_st;
    if (stat(path, &st) != 0) {
        if (errno == ENOENT) return WEFT_OK;
        return weft_err_errno(why, errno, "cannot write %s", path);
    }
    bool is_model = stat(model_path, &model_st) == 0 && st.st_dev == model_st.st_dev &&
                    st.st_ino == model_st.st_ino;
    if (is_model || weft_model_has_file(model, &st) || is_of_folder(path, model_path))
        return weft_err_set(why, WEFT_E_INVAL, "%s is part of the model itself", path);
    if (!S_ISREG(st.st_mode))
        return weft_err_set(why, WEFT_E_INVAL, "%s is not a file to write to", path);
    return replace ? WEFT_OK : is_there(path, why);
}

static weft_err open_named(struct file_out *out, struct weft_errmsg *why) {
    if (asprintf(&out->temp, "%s.XXXXXX", out->path) < 0) {
        out->temp = NULL;
        return weft_err_set(why, WEFT_E_NOMEM, "no memory for a name");
    }
    out->fd = weft_file_open_temp(out->temp);
    if (out->fd >= 0) return WEFT_OK;
    int error = errno;
    free(out->temp);
    out->temp = NULL;
    return weft_err_errno(why, error, "cannot write %s", out->path);
}

/* If the file system allows it, the file has no name yet: a process that is killed while packing
 * leaves nothing over. */
static weft_err open_out(struct file_out *out, struct weft_errmsg *why) {
    char *copy = strdup(out->path);
    if (!copy) return weft_err_set(why, WEFT_E_NOMEM, "no memory for a name");
    out->fd = open(dirname(copy), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
    free(copy);
    return out->fd >= 0 ? WEFT_OK : open_named(out, why);
}

/* Gives a file without a name one beside the wanted. */
static weft_err name_out(struct file_out *out, struct weft_errmsg *why) {
    char from[64];
    (void)snprintf(from, sizeof from, "/proc/self/fd/%d", out->fd);
    for (int tries = 0;; tries++) {
        if (asprintf(&out->temp, "%s.%d-%d", out->path, (int)getpid(), tries) < 0) {
            out->temp = NULL;
            return weft_err_set(why, WEFT_E_NOMEM, "no memory for a name");
        }
        if (linkat(AT_FDCWD, from, AT_FDCWD, out->temp, AT_SYMLINK_FOLLOW) == 0) return WEFT_OK;
        int error = errno;
        free(out->temp);
        out->temp = NULL;
        if (error != EEXIST || tries == 100)
            return weft_err_errno(why, error, "cannot write %s", out->path);
    }
}

/* The contents go to disk first, then the name, then the folder's list of names. The page cache is
 * told to forget what we wrote, as that lies in small pages; the first worker that maps the file
 * reads it in huge ones, which make decoding faster. */
static weft_err settle_out(struct file_out *out, struct weft_errmsg *why) {
    if (fsync(out->fd) != 0) return weft_err_errno(why, errno, "cannot write %s", out->path);
    (void)posix_fadvise(out->fd, 0, 0, POSIX_FADV_DONTNEED);
    weft_err err = out->temp ? WEFT_OK : name_out(out, why);
    if (err) return err;
    WEFT_ASSERT(out->temp != NULL);
    if (!out->replace && link(out->temp, out->path) == 0) {
        (void)unlink(out->temp);
    } else if (!out->replace && errno == EEXIST) {
        return is_there(out->path, why);
    } else if (rename(out->temp, out->path) != 0) {
        return weft_err_errno(why, errno, "cannot name %s", out->path);
    }
    free(out->temp);
    out->temp = NULL;
    char *copy = strdup(out->path);
    int dir = copy ? open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (dir >= 0) {
        (void)fsync(dir);
        (void)close(dir);
    }
    free(copy);
    return WEFT_OK;
}

static void close_out(struct file_out *out) {
    if (out->fd >= 0) (void)close(out->fd);
    if (out->temp) (void)unlink(out->temp);
    free(out->temp);
}

/* ---------------------------------------------------------------------------------- packing --- */

static weft_err pack_model(const char *path, const weft_model *model,
                           const struct weft_eng_options *options, struct file_out *out,
                           struct weft_eng_packed *info, struct weft_errmsg *why) {
    struct wefti_weights_plan plan;
    struct wefti_weights weights = {0};
    struct wefti_pool *pool = NULL;
    struct weft_packed packed = {0};
    struct stat st;
    uint32_t n_threads = options->n_threads ? options->n_threads : wefti_pool_n_cpus();
    weft_err err = wefti_weights_plan_make(&plan, model, options, &weights, why);
    if (err) goto cleanup;
    err = wefti_pool_new(weft_min_u32(n_threads, WEFT_THREADS_MAX), &pool, why);
    if (err) goto cleanup;
    err = open_out(out, why);
    if (err) goto cleanup;
    packed.arena_bytes = weights.bytes;
    packed.layout_hash = plan.place_hash;
    (void)snprintf(packed.packed_as, sizeof packed.packed_as, "%s",
                   wefti_options_dtype_name(options->dtype));
    err = put_arena(out, &plan, pool, &packed.weights_hash, why);
    const struct weft_packed_source source = {model, path, plan.stored};
    if (!err) err = weft_packed_finish(out->fd, out->path, &source, &packed, why);
    if (!err) err = settle_out(out, why);
    if (err) goto cleanup;
    if (fstat(out->fd, &st) == 0) info->file_bytes = (uint64_t)st.st_size;
    for (size_t i = 0; i < plan.n_items; i++)
        info->source_bytes += wefti_weights_source_bytes(&plan.items[i]);
    memcpy(info->packed_as, packed.packed_as, sizeof info->packed_as);
cleanup:
    wefti_pool_free(pool);
    wefti_weights_plan_fini(&plan);
    wefti_weights_close(&weights);
    return err;
}

weft_err weft_eng_pack(const char *path, const struct weft_eng_options *options,
                       const char *out_path, bool replace, struct weft_eng_packed *packed_out,
                       struct weft_errmsg *why) {
    struct file_out out = {.fd = -1, .path = out_path, .replace = replace};
    weft_model *model = NULL;
    uint64_t since_us = weft_now_us();
    *packed_out = (struct weft_eng_packed){0};
    weft_err err = weft_model_open(path, &model, why);
    if (err) goto cleanup;
    if (weft_model_packed(model)) {
        err = weft_err_set(why, WEFT_E_INVAL, "%s is packed already, as %s: pack its source", path,
                           weft_model_packed(model)->packed_as);
        goto cleanup;
    }
    err = check_out(out_path, path, model, replace, why);
    if (err) goto cleanup;
    err = pack_model(path, model, options, &out, packed_out, why);
    packed_out->us = weft_now_us() - since_us;
cleanup:
    close_out(&out);
    weft_model_free(model);
    return err;
}

weft_err weft_eng_pack_check(const char *path, const char *out_path, bool replace,
                             struct weft_errmsg *why) {
    weft_model *model = NULL;
    weft_err err = weft_model_open(path, &model, why);
    if (!err) err = check_out(out_path, path, model, replace, why);
    weft_model_free(model);
    return err;
}
