/* sim — a clock, processes and what happens to them, for a whole cluster in one thread.
 *
 * Model    Time is a number that moves from one event to the next. A process is something that turns
 *          when it has been woken, as its loop would; while it is stopped its events wait. Everything
 *          that chance decides comes from the world's seed, so a seed is a world.
 * Clock    clock_gettime is wrapped at link time, and so is all that would ask the kernel for
 *          randomness or memory figures: real code runs here unchanged.
 */
#ifndef WEFT_TESTS_FAULTS_SIM_H
#define WEFT_TESTS_FAULTS_SIM_H

#include <stdbool.h>
#include <stdint.h>

/* X(name, what it is) */
#define SIM_FAULTS(X)                                                                              \
    X(DROP, "bytes dropped")                                                                       \
    X(DUPLICATE, "bytes delivered twice")                                                          \
    X(REORDER, "bytes overtaken by later ones")                                                    \
    X(DELAY, "bytes delayed")                                                                      \
    X(CUT, "streams cut")                                                                          \
    X(SILENCE, "streams that carry nothing for a while")                                           \
    X(ROUTER_CRASH, "crashes of routers")                                                          \
    X(SCHEDULER_CRASH, "crashes of schedulers")                                                    \
    X(WORKER_CRASH, "crashes of workers")                                                          \
    X(ROUTER_STOP, "routers stopped for a while")                                                  \
    X(SCHEDULER_STOP, "schedulers stopped for a while")                                            \
    X(WORKER_STOP, "workers stopped for a while")                                                  \
    X(SLOW, "slow steps")                                                                          \
    X(JUMP, "jumps of the clock")

enum sim_fault {
#define X(name, text) SIM_##name,
    SIM_FAULTS(X)
#undef X
        SIM_FAULT_COUNT
};

/* ----------------------------------------------------------------------------------- chance --- */

uint32_t sim_dice(uint32_t n);                    /* below n */
uint64_t sim_between(uint64_t min, uint64_t max); /* both included */
bool sim_chance(uint32_t per_ten_thousand);

/* ------------------------------------------------------------------------------------ clock --- */

uint64_t sim_now_us(void);

typedef void sim_action(void *context, uint64_t tag);
/* Events of one time happen in the order in which they were asked for. */
void sim_at(uint64_t at_us, sim_action *action, void *context, uint64_t tag);

/* -------------------------------------------------------------------------------- processes --- */

struct sim_proc {
    const char *kind;
    uint32_t idx;
    bool is_alive;
    uint64_t stopped_until_us;
    uint64_t turn_at_us; /* the next turn; UINT64_MAX: none */
    void (*turn)(struct sim_proc *proc);
};

void sim_wake(struct sim_proc *proc, uint64_t at_us);
bool sim_is_stopped(const struct sim_proc *proc);

/* ------------------------------------------------------------------------------- one world --- */

void sim_begin(uint64_t seed, bool is_verbose);
/* Until the time has come or nothing is left. */
void sim_run(uint64_t until_us);
uint64_t sim_end(void); /* a hash of all that happened, by time and order */

void sim_count(enum sim_fault fault);
uint64_t sim_n_faults(enum sim_fault fault); /* of all worlds */
const char *sim_fault_text(enum sim_fault fault);

/* One line of what happens, with the time, if the world is told aloud. */
void sim_say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Something is wrong: prints it with the seed, and aborts. */
_Noreturn void sim_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
#define SIM_CHECK(holds, ...)                                                                      \
    do {                                                                                           \
        if (!(holds)) sim_fail(__VA_ARGS__);                                                       \
    } while (0)

#endif
