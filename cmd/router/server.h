/* server — the event loop and everything on it: listeners, connections, the clock's tick.
 *
 * Turn     Callbacks only take in what came and note which connections have something to send. Once
 *          per turn of the loop, before it waits, those render and write, and new jobs go to the
 *          scheduler: so a step's tokens for a client leave in one write.
 * Bounds   --max-connections, at most half of them MessagePack-RPC, whose clients may be silent for
 *          ever. One more over HTTP gets a spare place: whoever watches the server (probes,
 *          metrics) is answered there, anybody else 503, and the connection ends. Whoever says
 *          nothing there makes room for the next. A connection's output buffer is filled to
 *          WEFT_OUT_BYTES and one item more (a stream's chunk, a MessagePack-RPC result), and again
 *          when empty; a client that takes too little within --client-stall-timeout is dropped
 *          (pace.h).
 */
#ifndef WEFT_ROUTER_SERVER_H
#define WEFT_ROUTER_SERVER_H

#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/socket.h>
#include <uv.h>

#include "api/access.h"
#include "api/api.h"
#include "api/live.h"
#include "api/pace.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/file.h"
#include "batches/batches.h"
#include "common/config.h"
#include "handover.h"
#include "scheduler_link.h"
#include "work.h"

#define WEFT_OUT_BYTES 65536
#define WEFT_READ_BYTES 65536
/* With --request-memory: what one read brings may have to wait, and a connection has little room (serve/memory.c). */
#define WEFT_SMALL_READ_BYTES 4096
#define WEFT_IDENTITY_BYTES_MAX 640 /* ten entries, which fit a status line */

struct conn;
typedef struct weft_api_call weft_api_call;

struct conn_ops { /* what a protocol does on a connection */
    void (*on_bytes)(struct conn *conn, const char *bytes, size_t n);
    void (*on_turn)(struct conn *conn); /* after wefti_conn_awake, or when its output has left */
    void (*on_eof)(struct conn *conn);
    void (*on_tick)(struct conn *conn, uint64_t now_ms);
    void (*on_give_up)(struct conn *conn); /* the server ends now: what is under way is told so */
    bool (*is_busy)(const struct conn *conn); /* a drain waits for it */
    void (*on_close)(struct conn *conn);      /* frees everything but conn->proto */
    void (*on_free)(struct conn *conn);       /* frees conn->proto, once no caller is inside */
};

enum conn_place {
    CONN_PLACE,       /* of --max-connections */
    CONN_SPARE_PLACE, /* for one request of those who watch the server */
    CONN_NO_PLACE,    /* it is told so, and closed */
};

struct conn {
    uv_tcp_t tcp;
    uv_write_t write;
    uv_shutdown_t shutdown;
    struct server *server;
    const struct conn_ops *ops;
    void *proto;
    LIST_ENTRY(conn) entry;        /* all connections */
    TAILQ_ENTRY(conn) spare_entry; /* those in spare places, the oldest first */
    TAILQ_ENTRY(conn) awake_entry; /* those with something to do this turn */
    struct weft_buf out;           /* not given to libuv yet */
    struct weft_buf writing;       /* being written, from writing_from on */
    size_t writing_from;
    uint64_t handed_bytes;          /* to libuv, ever */
    uint64_t written_ms;            /* when the socket took the last byte that had to wait for it */
    uint64_t held_bytes;            /* of the shared budgets; set by the protocol's tick */
    struct weft_api_read_pace pace; /* of the client's reading */
    uint64_t linger_until_ms;       /* 0: not lingering */
    uint64_t opened_ms;
    char client[64]; /* address and port, for the access log; "": nobody asks */
    enum conn_place place;
    bool is_http;
    bool is_awake, is_writing, is_reading, is_closing;
    bool ends_when_flushed, lingers;
};

union server_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

struct replacing { /* a server that runs, by --replace (replace.h) */
    struct work work;
    struct server *server;
    void (*take)(struct server *server); /* called while it could serve, and does not listen */
    uint64_t instance;                   /* the one that was found at the start */
    bool may_take;              /* nothing of ours can fail any more, says the supervisor */
    _Atomic bool is_called_off; /* this server is to end, and must not end the other one as well */
    bool is_taking;             /* in a thread, which has what follows: */
    struct handover_offer offer;
    weft_err err;
    struct weft_errmsg why;
};

struct server {
    struct weft_api_state api;
    struct scheduler_links schedulers;
    struct weft_config config;
    uv_loop_t loop;
    union server_address at;                   /* what --host stands for */
    char address[64];                          /* the same, numeric */
    uv_tcp_t listeners[WEFT_HANDOVER_CONTROL]; /* HTTP, MessagePack-RPC */
    uint32_t n_listeners;                      /* 0: it is to replace another server first */
    uint32_t ports[WEFT_HANDOVER_CONTROL];
    struct handover handover; /* to whoever replaces this one */
    struct replacing replacing;
    uv_poll_t link_polls[WEFT_API_SCHEDULERS_MAX], signal_poll;
    uv_timer_t tick;
    uv_prepare_t turn;
    uv_idle_t again; /* active: the loop must not wait */
    int signal_fd;
    LIST_HEAD(, conn) conns;
    TAILQ_HEAD(conns_awake, conn) awake;
    TAILQ_HEAD(conns_spare, conn) spare;
    uint32_t n_conns, n_rpc_conns, n_spare; /* n_conns: in places of --max-connections */
    uint32_t max_conns, max_spare;
    uint64_t n_turns;       /* of the loop */
    uint64_t prepared_turn; /* the last one in which it prepared calls, */
    size_t prepared_bytes;  /* and their bytes */
    struct work_queue work; /* what the loop must not do itself */
    struct batches batches; /* and files, that are kept */
    uint64_t complained_ms; /* when the log last heard about clients */
    uint32_t n_muted;       /* messages left out since */
    enum weft_api_access_format access_format;
    const char *identity;      /* of the model's files, for the supervisor */
    struct weft_api_live live; /* who watches /stats */
    struct weft_buf scratch;   /* for rendering, within one callback */
    bool was_ready;
    uint64_t alive_at_ms;    /* when the supervisor was last told so */
    uint64_t drain_at_ms;    /* --drain-delay is over then; 0: nobody has asked the server to end */
    uint64_t drain_until_ms; /* 0: not draining */
    bool has_given_up;       /* on what was still under way at the end of --drain-timeout */
    uint64_t replaced_ms;    /* since then another server accepts; 0: this one does */
    bool was_asked;          /* by a signal to end */
    bool has_failed;         /* cannot go on: `failure` says why */
    struct weft_errmsg failure;
    char read_bytes[WEFT_READ_BYTES];
};

/* Sets up the loop; replace.h lets clients in. */
WEFT_MUST_CHECK weft_err wefti_server_init(struct server *server, int signal_fd,
                                           struct weft_errmsg *why);
/* Reads the API keys of the settings and puts them in place; at an error those before stay. */
WEFT_MUST_CHECK weft_err wefti_load_keys(struct server *server, enum weft_file_kind kind,
                                         struct weft_errmsg *why);

void wefti_server_run(struct server *server); /* until drained, told to exit, or has_failed */
void wefti_server_fini(struct server *server);

/* Ends wefti_server_run. */
void wefti_server_fail(struct server *server, const char *sentence);

/* Whether the answer to the next request of a connection, which has been idle since then, should be
 * waited for: its client does not know yet that another server accepts. */
bool wefti_server_expects(const struct server *server, uint64_t idle_since_ms, uint64_t now_ms);

/* Parses, tokenizes and submits a call: at once if its body is small and this turn of the loop has
 * done little, else in a thread. */
void wefti_server_begin(struct server *server, weft_api_call *call);

/* Writes a line of the access log, if there is one; fills in the client. */
void wefti_server_log_access(const struct conn *conn, struct weft_api_access *access);

/* Logs what a client did, at most once a second, so that clients cannot fill a disk. The next
 * message says how many were left out. */
void wefti_server_complain(struct server *server, const char *fmt, ...) WEFT_PRINTF(2, 3);

/* ------------------------------------------------------------------------------ connections --- */

/* One that was accepted, with its place: from now on it is ended by wefti_conn_close. */
void wefti_conn_begin(struct conn *conn);
void wefti_conn_awake(struct conn *conn); /* on_turn before the loop waits again */
void wefti_conn_flush(struct conn *conn); /* writes `out`, as far as the socket takes it */
void wefti_conn_close(struct conn *conn); /* now; on_close follows */
void wefti_conn_read(struct conn *conn, bool on);

/* Closes once all output has left. `linger`: the client may still be sending; its bytes are
 * discarded for a while, since closing at once would lose the answer to a reset. */
void wefti_conn_end(struct conn *conn, bool linger);

/* How long a connection may stay in a spare place. */
#define WEFT_SPARE_MS 2000

/* True while there is too much output to add more. */
bool wefti_conn_is_full(const struct conn *conn);

#endif
