/* link_ends — ends of links that stream to each other, for the cases in test_link*.c, and a far end
 * in a process of its own. What the linker puts in the place of some functions is here, too.
 *
 * Both ends stream numbered messages with pattern bodies as fast as a window of unanswered ones
 * allows, and check what they get: from 0 in each session, no hole, no repeat. The far end is this
 * program again ("test_link far ..."). */
#ifndef WEFT_TESTS_LINK_ENDS_H
#define WEFT_TESTS_LINK_ENDS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <nng/nng.h>
#include <sys/types.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/rand.h"
#include "link/link.h"

#define PEERS 8 /* of a hub that a test looks at */
#define PATIENCE_MS 20000

extern uint64_t rand_state;

/* -------------------------------------------------------------------------------- transports --- */

/* Most cases run over each of them. */
enum { ABSTRACT, IPC, TCP, TLS, TRANSPORTS };
extern const char *const transports[TRANSPORTS];
extern int transport;
extern char ipc_dir[];

/* Certificates of an authority, and those of another one. A far end inherits the descriptors, which
 * an environment variable lists. */
struct identity {
    char ca[32], cert[32], key[32];
};
extern struct identity ours, strangers;

void make_identities(void);
struct weft_link_options options_of(const struct identity *id);

const char *fresh_url(void);

/* A case, and a bit for each transport over which it runs. */
struct link_case {
    struct CMUnitTest test;
    unsigned where;
};
#define OVER(transport) (1u << (transport))
#define OVER_ALL (OVER(TRANSPORTS) - 1)
#define LINK_CASE(function, where)                                                                 \
    { cmocka_unit_test(function), where }

/* Ended by one without a name. */
extern const struct link_case session_cases[];  /* test_link.c */
extern const struct link_case process_cases[];  /* test_link_processes.c */
extern const struct link_case stranger_cases[]; /* test_link_strangers.c */

/* ------------------------------------------------------------------------- a streaming end --- */

struct stream {
    bool up;
    uint64_t n_ups, n_downs;
    uint64_t n_sent, n_got, n_answered; /* in this session */
    uint64_t n_told;                    /* n_got as the other side knows it */
    uint64_t n_got_ever;
};

struct end {
    weft_link *link;
    uint32_t n_peers;
    bool streams; /* sends by itself */
    struct stream peers[PEERS];
};
void send_numbered(struct end *end, uint32_t peer);

/* The owners' clock. A case may put it forward, or let it follow the turns and not the machine. */
extern uint64_t ahead_ms;
extern bool clock_follows_turns;

/* Waits for at most `wait_ms`, then takes everything that is there. Without the ticks of a turn
 * nothing times out. */
void look(struct end *end, int wait_ms);

/* A look, a tick, then sends. */
void turn(struct end *end, int wait_ms);
void turn_both(struct end *a, struct end *b);

void open_end(struct end *end, bool dials, enum weft_link_kind kind, const char *url);
void open_pair_of_ends(struct end *a, struct end *b, enum weft_link_kind kind, const char *url);
void close_end(struct end *end);
weft_err listen_alone(const char *url, weft_link **link_out, struct weft_errmsg *why);

uint32_t count_fds(void);

#define WAIT_FOR(condition, step)                                                                  \
    do {                                                                                           \
        uint64_t give_up_ms = weft_now_ms() + PATIENCE_MS;                                         \
        while (!(condition)) {                                                                     \
            step;                                                                                  \
            if (weft_now_ms() > give_up_ms) fail_msg("never: %s", #condition);                     \
        }                                                                                          \
    } while (0)

/* ------------------------------------------------------------------------------ a far end --- */

/* test_link far DIALS KIND URL [UID]: streams until it is killed. */
int far_main(char **argv);
pid_t spawn_far(bool dials, enum weft_link_kind kind, const char *url, const char *uid);
void kill_far(pid_t pid);

/* ------------------------------------------------------------------- in the linker's hands --- */

extern bool users_are_unknown;
extern uint32_t n_unknown, n_mails;
extern uint32_t n_dials;
extern bool is_impatient;
extern nng_duration pause_ms; /* before the last dial */

#endif
