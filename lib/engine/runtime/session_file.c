#include "engine/session_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/limits.h"
#include "runtime/session_head.h"
#include "state.h"

#define NAME_BYTES_MAX 128u
/* Behind a '.' and the name: no name of a session's file begins so, and nobody else's file ends so. */
#define FRESH_END ".weft-session.new"
#define FRESH_NAME_BYTES (1 + NAME_BYTES_MAX + sizeof FRESH_END)

struct weft_eng_session_file {
    int fd;
    char name[NAME_BYTES_MAX + 1];
    struct wefti_session_head head;
    uint8_t *front; /* all that is before the blocks */
    const _Atomic bool *is_called_off;
    struct weft_eng_session session;
};

static weft_err check_on(const _Atomic bool *is_called_off, struct weft_errmsg *why) {
    if (!atomic_load(is_called_off)) return WEFT_OK;
    return weft_err_set(why, WEFT_E_CLOSED, "the worker starts over, try again");
}

/* ----------------------------------------------------------------------------------- facts --- */

bool weft_eng_session_name_fits(const char *name, size_t len) {
    if (len == 0 || len > NAME_BYTES_MAX || name[0] == '.') return false;
    for (size_t i = 0; i < len; i++) {
        if (name[i] == '/' || (unsigned char)name[i] < 0x20 || name[i] == 0x7f) return false;
    }
    return true;
}

weft_err weft_eng_session_check_folder(const char *dir, struct weft_errmsg *why) {
    int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return weft_err_errno(why, errno, "cannot open the folder %s", dir);
    int status = faccessat(fd, ".", R_OK | W_OK | X_OK, AT_EACCESS) == 0 ? 0 : errno;
    (void)close(fd);
    return status ? weft_err_errno(why, status, "cannot write to the folder %s", dir) : WEFT_OK;
}

uint32_t weft_eng_session_n_blocks(const struct weft_eng_info *info, enum weft_kv_kind kind,
                                   uint32_t n_tokens) {
    const struct wefti_session_want facts = {
        .block_size = info->block_size, .window = info->window, .has_state = info->is_recurrent};
    return wefti_session_n_blocks(kind, &facts, n_tokens);
}

_Static_assert((int)WEFTI_SESSION_KV_F32 == (int)WEFT_KV_F32 &&
                   (int)WEFTI_SESSION_KV_BF16 == (int)WEFT_KV_BF16 &&
                   (int)WEFTI_SESSION_KV_F16 == (int)WEFT_KV_F16 &&
                   (int)WEFTI_SESSION_KV_INT8 == (int)WEFT_KV_INT8 &&
                   (int)WEFTI_SESSION_KV_COUNT == (int)WEFT_KV_DTYPE_COUNT,
               "files keep these numbers, and each type has a name");

static struct wefti_session_want facts_of(const weft_eng *eng, uint64_t tenant) {
    struct wefti_session_want facts = {
        .model_name = eng->info.model_name,
        .fingerprint = eng->info.fingerprint,
        .tenant = tenant,
        .block_size = eng->info.block_size,
        .window = eng->info.window,
        .kv_dtype = (uint32_t)eng->kv_dtype,
        .n_vocab = eng->info.n_vocab,
    };
    for (uint32_t kind = 0; kind < WEFT_KV_KINDS; kind++)
        facts.block_bytes[kind] = eng->kv.block_bytes[kind];
    facts.has_state = eng->info.is_recurrent;
    if (facts.has_state) facts.block_bytes[WEFT_KV_WINDOWED] = eng->states.place_bytes;
    return facts;
}

/* With errno. It was there when the server started: its loss is no fault of who asks. */
static weft_err no_folder(struct weft_errmsg *why) {
    weft_err err = weft_err_errno(why, errno, "cannot open the sessions' folder");
    return err == WEFT_E_NOTFOUND ? WEFT_E_IO : err;
}

/* All of it, or -1 with errno. */
static int move(int fd, void *bytes, size_t n_bytes, uint64_t at, bool is_write) {
    char *from = bytes;
    while (n_bytes > 0) {
        ssize_t n =
            is_write ? pwrite(fd, from, n_bytes, (off_t)at) : pread(fd, from, n_bytes, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = EIO; /* it has become shorter */
        if (n <= 0) return -1;
        from += n;
        n_bytes -= (size_t)n;
        at += (uint64_t)n;
    }
    return 0;
}

/* ---------------------------------------------------------------------------------- saving --- */

static bool is_fresh_name(const char *name) {
    size_t len = strlen(name), n_end = strlen(FRESH_END);
    return name[0] == '.' && len > n_end && strcmp(name + len - n_end, FRESH_END) == 0;
}

/* Whether it may be removed or written over: its writer has got no further than the first bytes, or
 * these are a session's. Whatever else lies in the folder is not ours. */
static bool is_ours(int fd) {
    struct stat st;
    char begin[WEFTI_SESSION_MAGIC_BYTES];
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) return false;
    if (st.st_size == 0) return true;
    return move(fd, begin, sizeof begin, 0, false) == 0 && wefti_session_has_magic(begin);
}

/* Whether the file that is open is still the one of that name: until it was locked, its writer may
 * have given it another name or removed it. From then on nobody else does. */
static bool has_name(int dir, const char *name, int fd) {
    struct stat is, named;
    return fstat(fd, &is) == 0 && fstatat(dir, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           is.st_dev == named.st_dev && is.st_ino == named.st_ino;
}

/* Somebody who writes such a file holds its lock: without, its writer has died. */
static void remove_dead(int dir, const char *name) {
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && has_name(dir, name, fd) && is_ours(fd))
        (void)unlinkat(dir, name, 0);
    (void)close(fd);
}

/* What the folder's files take, but for the one that is replaced. Removes what dead writers left. */
static weft_err sum_folder(int dir, const char *replaced, uint64_t *n_bytes_out,
                           struct weft_errmsg *why) {
    *n_bytes_out = 0;
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = fd >= 0 ? fdopendir(fd) : NULL;
    if (!entries) {
        weft_err err = weft_err_errno(why, errno, "cannot list the sessions' folder");
        if (fd >= 0) (void)close(fd);
        return err;
    }
    for (struct dirent *entry = readdir(entries); entry; entry = readdir(entries)) {
        struct stat st;
        if (is_fresh_name(entry->d_name)) remove_dead(dir, entry->d_name);
        if (fstatat(dir, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(st.st_mode))
            continue;
        if (strcmp(entry->d_name, replaced) != 0) *n_bytes_out += (uint64_t)st.st_size;
    }
    (void)closedir(entries);
    return WEFT_OK;
}

static weft_err check_room(int dir, const char *name, uint64_t n_bytes, uint64_t dir_bytes_max,
                           struct weft_errmsg *why) {
    uint64_t n_used = 0;
    if (dir_bytes_max == UINT64_MAX)
        return WEFT_OK; /* somebody's own folder: not ours to go through */
    weft_err err = sum_folder(dir, name, &n_used, why);
    if (err || (n_used <= dir_bytes_max && n_bytes <= dir_bytes_max - n_used)) return err;
    return weft_err_set(why, WEFT_E_FULL,
                        "'%s' would take %" PRIu64 " bytes; the sessions' folder has %" PRIu64
                        " of at most %" PRIu64,
                        name, n_bytes, n_used, dir_bytes_max);
}

/* With errno: a folder that went away is no session that is not found. */
static weft_err cannot_write(const char *name, struct weft_errmsg *why) {
    bool is_full = errno == ENOSPC || errno == EDQUOT;
    weft_err err = weft_err_errno(why, errno, "cannot write '%s'", name);
    return is_full ? WEFT_E_FULL : err == WEFT_E_NOTFOUND ? WEFT_E_IO : err;
}

static weft_err refuse_busy(const char *name, struct weft_errmsg *why) {
    return weft_err_set(why, WEFT_E_AGAIN, "'%s' is being written already, try again", name);
}

/* Locks the file and empties it; *is_stale_out: it has lost its name meanwhile. */
static weft_err begin_fresh(int dir, int fd, const char *name, const char *fresh,
                            bool *is_stale_out, struct weft_errmsg *why) {
    *is_stale_out = false;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        return errno == EWOULDBLOCK ? refuse_busy(name, why) : cannot_write(name, why);
    *is_stale_out = !has_name(dir, fresh, fd);
    if (*is_stale_out) return refuse_busy(name, why);
    if (!is_ours(fd))
        return weft_err_set(why, WEFT_E_IO, "cannot write '%s': '%s' is in the way", name, fresh);
    return ftruncate(fd, 0) == 0 ? WEFT_OK : cannot_write(name, why);
}

/* Others of its name may come and go: each time one is written meanwhile. */
static weft_err open_fresh(int dir, const char *name, const char *fresh, int *fd_out,
                           struct weft_errmsg *why) {
    bool is_stale = true;
    weft_err err = WEFT_E_AGAIN;
    *fd_out = -1;
    for (int tries = 0; is_stale && tries < 8; tries++) {
        int fd = openat(dir, fresh, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
        if (fd < 0) return cannot_write(name, why);
        err = begin_fresh(dir, fd, name, fresh, &is_stale, why);
        if (!err)
            *fd_out = fd;
        else
            (void)close(fd);
    }
    return err;
}

/* Whose it is stands in the head of every version at the same place. */
static weft_err check_owner(int fd, const char *name, uint64_t tenant, struct weft_errmsg *why) {
    struct wefti_session_head head;
    if (move(fd, &head, sizeof head, 0, false) != 0) return WEFT_OK; /* a piece of a file */
    if (head.tenant == tenant) return WEFT_OK;
    return weft_err_set(why, WEFT_E_PROTO,
                        "'%s' was saved with another API key, and stays as it is", name);
}

/* A save takes the place of a session's file of the same owner, and of nothing else that somebody
 * keeps there. Who saves under this name holds the lock of the fresh file, so this stays true. */
static weft_err check_replaced(int dir, const char *name, uint64_t tenant,
                               struct weft_errmsg *why) {
    int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    if (fd < 0 && errno == ENOENT) return WEFT_OK;
    weft_err err =
        fd >= 0 && is_ours(fd)
            ? check_owner(fd, name, tenant, why)
            : weft_err_set(why, WEFT_E_PROTO, "'%s' is no session's file and stays as it is", name);
    if (fd >= 0) (void)close(fd);
    return err;
}

/* Where one of a kind lies, and how many there are. Of states they are checkpoints. */
static uint8_t *piece_of(const weft_eng *eng, uint32_t kind, uint32_t idx) {
    if (kind == WEFT_KV_FULL || !eng->info.is_recurrent)
        return wefti_kv_cache_block(&eng->kv, (enum weft_kv_kind)kind, idx);
    return wefti_states_place(&eng->states, eng->info.max_seqs + idx);
}

static uint32_t n_pieces(const weft_eng *eng, uint32_t kind) {
    if (kind == WEFT_KV_FULL || !eng->info.is_recurrent) return eng->kv.n_blocks[kind];
    return eng->info.n_checkpoints;
}

/* Blocks first, whose digests stand before them. */
static int write_blocks(const weft_eng *eng, int fd, uint8_t *front,
                        const struct wefti_session_head *head,
                        const struct weft_eng_session_blocks *blocks) {
    uint64_t at = wefti_session_front_bytes(head);
    uint8_t *digests = front + sizeof *head + sizeof(uint32_t) * (size_t)head->n_tokens;
    for (uint32_t kind = 0; kind < WEFT_KV_KINDS; kind++) {
        for (uint32_t i = 0; i < head->n_blocks[kind]; i++) {
            uint64_t n_bytes = head->block_bytes[kind];
            uint8_t *block = piece_of(eng, kind, blocks->blocks[kind][i]);
            struct wefti_session_digest digest = wefti_session_block_digest(block, n_bytes);
            memcpy(digests, &digest, sizeof digest);
            digests += sizeof digest;
            if (move(fd, block, n_bytes, at, true)) return -1;
            at += n_bytes;
        }
    }
    return 0;
}

/* -1 with errno. */
static int write_file(const weft_eng *eng, int fd, struct wefti_session_head *head,
                      const struct weft_eng_session *session) {
    uint64_t n_front = wefti_session_front_bytes(head);
    uint8_t *front = calloc(1, n_front);
    if (!front) return -1;
    memcpy(front + sizeof *head, session->tokens, sizeof(uint32_t) * (size_t)head->n_tokens);
    int status = move(fd, head, sizeof *head, 0, true); /* ours from here, without its digest */
    if (!status) status = write_blocks(eng, fd, front, head, &session->blocks);
    memcpy(front, head, sizeof *head);
    head->digest = wefti_session_front_digest(front, n_front);
    memcpy(front, head, sizeof *head);
    if (!status) status = move(fd, front, n_front, 0, true);
    if (!status) status = fsync(fd);
    int why = errno;
    free(front);
    errno = why;
    return status;
}

/* Who asks is another process. */
static weft_err check_blocks(const weft_eng *eng, const struct weft_eng_session_blocks *blocks,
                             const struct wefti_session_head *head, bool is_part,
                             struct weft_errmsg *why) {
    for (uint32_t kind = 0; kind < WEFT_KV_KINDS; kind++) {
        uint32_t n = blocks->n[kind], n_all = head->n_blocks[kind];
        bool may_be_fewer = is_part && kind == WEFT_KV_FULL;
        if (n > n_all || (n < n_all && !may_be_fewer))
            return weft_err_set(why, WEFT_E_PROTO, "%u blocks of kind %u, where there are %u", n,
                                kind, n_all);
        for (uint32_t i = 0; i < n; i++) {
            if (blocks->blocks[kind][i] < n_pieces(eng, kind)) continue;
            return weft_err_set(why, WEFT_E_PROTO, "block %u of kind %u, of %u",
                                blocks->blocks[kind][i], kind, n_pieces(eng, kind));
        }
    }
    return WEFT_OK;
}

static weft_err check_wish(const weft_eng *eng, const char *name,
                           const struct weft_eng_session *session, struct weft_errmsg *why) {
    uint32_t n = session->n_tokens;
    if (!weft_eng_session_name_fits(name, strlen(name)))
        return weft_err_set(why, WEFT_E_INVAL, "that is no name for a file");
    if (n > 0 && n <= WEFT_CONTEXT_MAX && n % eng->info.block_size == 0) return WEFT_OK;
    return weft_err_set(why, WEFT_E_PROTO, "a session of %u tokens in blocks of %u", n,
                        eng->info.block_size);
}

weft_err weft_eng_session_save(const weft_eng *eng, const struct weft_eng_session_folder *folder,
                               const char *name, const struct weft_eng_session *session,
                               uint64_t *n_bytes_out, struct weft_errmsg *why) {
    struct wefti_session_want facts = facts_of(eng, session->tenant);
    struct wefti_session_head head;
    char fresh[FRESH_NAME_BYTES];
    int fd = -1;
    *n_bytes_out = 0;
    weft_err err = check_wish(eng, name, session, why);
    if (err) return err;
    wefti_session_head_init(&head, &facts, session->n_tokens);
    head.space_hi = session->space_hi;
    head.space_lo = session->space_lo;
    err = check_blocks(eng, &session->blocks, &head, false, why);
    if (err) return err;
    int dir = open(folder->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) return no_folder(why);
    (void)snprintf(fresh, sizeof fresh, ".%s" FRESH_END, name);
    uint64_t n_bytes = wefti_session_file_bytes(&head);
    err = open_fresh(dir, name, fresh, &fd, why);
    if (err) goto cleanup;
    err = check_replaced(dir, name, session->tenant, why);
    if (!err) err = check_room(dir, name, n_bytes, folder->bytes_max, why);
    if (!err && write_file(eng, fd, &head, session)) err = cannot_write(name, why);
    if (!err) err = check_on(folder->is_called_off, why); /* after all blocks were read */
    if (!err && renameat(dir, fresh, dir, name) != 0) err = cannot_write(name, why);
    if (err) (void)unlinkat(dir, fresh, 0);
    if (!err) (void)fsync(dir);
    if (!err) *n_bytes_out = n_bytes;
cleanup:
    if (fd >= 0) (void)close(fd);
    (void)close(dir);
    return err;
}

/* --------------------------------------------------------------------------------- reading --- */

static weft_err open_file(const char *dir, const char *name, int *fd_out, uint64_t *n_bytes_out,
                          struct weft_errmsg *why) {
    struct stat st;
    *fd_out = -1;
    int folder = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) return no_folder(why);
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    int status = errno;
    (void)close(folder);
    if (fd < 0 && status == ENOENT)
        return weft_err_set(why, WEFT_E_NOTFOUND, "there is no file '%s' in the sessions' folder",
                            name);
    if (fd < 0 && status == ELOOP) /* a link is not followed */
        return weft_err_set(why, WEFT_E_PROTO, "'%s' is no session's file", name);
    if (fd < 0) return weft_err_errno(why, status, "cannot read '%s'", name);
    *fd_out = fd;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return weft_err_set(why, WEFT_E_PROTO, "'%s' is no session's file", name);
    *n_bytes_out = (uint64_t)st.st_size;
    return WEFT_OK;
}

static weft_err read_front(weft_eng_session_file *file, const struct wefti_session_want *want,
                           uint64_t n_bytes, struct weft_errmsg *why) {
    struct wefti_session_head *head = &file->head;
    if (n_bytes < sizeof *head)
        return weft_err_set(why, WEFT_E_PROTO, "'%s' is no session's file", file->name);
    if (move(file->fd, head, sizeof *head, 0, false))
        return weft_err_errno(why, errno, "cannot read '%s'", file->name);
    weft_err err = wefti_session_check_head(head, n_bytes, file->name, want, why);
    if (err) return err;
    uint64_t n_front = wefti_session_front_bytes(head);
    file->front = malloc(n_front);
    if (!file->front) return weft_err_set(why, WEFT_E_NOMEM, "no memory to read '%s'", file->name);
    if (move(file->fd, file->front, n_front, 0, false))
        return weft_err_errno(why, errno, "cannot read '%s'", file->name);
    /* It may be another file by now. */
    if (memcmp(file->front, head, sizeof *head) != 0)
        return weft_err_set(why, WEFT_E_PROTO, "'%s' changed while it was read", file->name);
    return wefti_session_check_front(file->front, file->name, want, why);
}

weft_err weft_eng_session_open(const weft_eng *eng, const struct weft_eng_session_folder *folder,
                               const char *name, uint64_t tenant, weft_eng_session_file **file_out,
                               struct weft_errmsg *why) {
    struct wefti_session_want want = facts_of(eng, tenant);
    uint64_t n_bytes = 0;
    *file_out = NULL;
    if (!weft_eng_session_name_fits(name, strlen(name)))
        return weft_err_set(why, WEFT_E_INVAL, "that is no name for a file");
    weft_eng_session_file *file = calloc(1, sizeof *file);
    if (!file) return weft_err_set(why, WEFT_E_NOMEM, "no memory to read '%s'", name);
    file->fd = -1;
    file->is_called_off = folder->is_called_off;
    (void)snprintf(file->name, sizeof file->name, "%s", name);
    weft_err err = open_file(folder->dir, name, &file->fd, &n_bytes, why);
    if (!err) err = read_front(file, &want, n_bytes, why);
    if (err) {
        weft_eng_session_close(file);
        return err;
    }
    _Static_assert(sizeof file->head % _Alignof(uint32_t) == 0, "tokens follow it");
    file->session = (struct weft_eng_session){
        .tenant = file->head.tenant,
        .space_hi = file->head.space_hi,
        .space_lo = file->head.space_lo,
        .tokens = (const uint32_t *)(const void *)(file->front + sizeof file->head),
        .n_tokens = file->head.n_tokens,
    };
    *file_out = file;
    return WEFT_OK;
}

void weft_eng_session_close(weft_eng_session_file *file) {
    if (!file) return;
    if (file->fd >= 0) (void)close(file->fd);
    free(file->front);
    free(file);
}

const struct weft_eng_session *weft_eng_session_of(const weft_eng_session_file *file) {
    return &file->session;
}

uint64_t weft_eng_session_bytes(const weft_eng_session_file *file) {
    return wefti_session_file_bytes(&file->head);
}

static weft_err read_block(weft_eng_session_file *file, uint64_t at, uint32_t idx, uint8_t *block,
                           uint64_t n_bytes, struct weft_errmsg *why) {
    const uint8_t *digests =
        file->front + sizeof file->head + sizeof(uint32_t) * (size_t)file->head.n_tokens;
    struct wefti_session_digest wanted, digest;
    if (move(file->fd, block, n_bytes, at, false))
        return weft_err_errno(why, errno, "cannot read '%s'", file->name);
    digest = wefti_session_block_digest(block, n_bytes);
    memcpy(&wanted, digests + idx * sizeof wanted, sizeof wanted);
    if (digest.lo == wanted.lo && digest.hi == wanted.hi) return WEFT_OK;
    return weft_err_set(why, WEFT_E_PROTO, "'%s' is damaged: block %u is not what was saved",
                        file->name, idx);
}

weft_err weft_eng_session_read(weft_eng *eng, weft_eng_session_file *file,
                               const struct weft_eng_session_blocks *blocks,
                               struct weft_errmsg *why) {
    const struct wefti_session_head *head = &file->head;
    uint64_t at = wefti_session_front_bytes(head);
    uint32_t idx = 0; /* of all blocks of the file */
    weft_err err = check_blocks(eng, blocks, head, true, why);
    if (err) return err;
    for (uint32_t kind = 0; kind < WEFT_KV_KINDS; kind++) {
        uint32_t n_skipped = head->n_blocks[kind] - blocks->n[kind];
        for (uint32_t i = 0; i < head->n_blocks[kind]; i++, idx++, at += head->block_bytes[kind]) {
            if (i < n_skipped) continue;
            uint32_t block_idx = blocks->blocks[kind][i - n_skipped];
            uint8_t *block = piece_of(eng, kind, block_idx);
            if (eng->draft && kind == WEFT_KV_FULL) wefti_draft_forget(eng->draft, block_idx);
            if (eng->mtp && kind == WEFT_KV_FULL) wefti_mtp_forget(eng->mtp, block_idx);
            err = check_on(file->is_called_off, why);
            if (err) return err;
            bool is_state = eng->info.is_recurrent && kind == WEFT_KV_WINDOWED;
            if (is_state) eng->slots.kept_tokens[block_idx] = 0; /* until it is there whole */
            err = read_block(file, at, idx, block, head->block_bytes[kind], why);
            if (err) return err;
            if (is_state) eng->slots.kept_tokens[block_idx] = head->n_tokens;
        }
    }
    return WEFT_OK;
}
