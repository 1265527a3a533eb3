/* wire — the byte streams below lib/link, without a kernel: what it calls of nng is defined here.
 *
 * So sessions, frames, numbers and queues are those of lib/link itself. A stream has a latency and
 * bounded room; faults hit what is sent on it. Bytes that are dropped, doubled or overtaken cannot
 * come from a kernel: they stand for mistakes below the session, which must notice them. Where a
 * lost piece was the last for long, nobody could: then the stream is cut a second later.
 *
 * A process that is stopped takes nothing; what is sent to it waits, as in a kernel's buffers. One
 * that is killed leaves streams whose ends the peers see, after all that it had sent.
 */
#ifndef WEFT_TESTS_FAULTS_WIRE_H
#define WEFT_TESTS_FAULTS_WIRE_H

#include "property/faults/sim.h"

struct wire_odds { /* per ten thousand pieces sent */
    uint32_t drop, duplicate, reorder, delay;
};

void wire_begin(void);
void wire_end(void); /* of the world: all processes have freed their links */

void wire_set_odds(const struct wire_odds *odds);

/* Whose the things are that are made from now on. */
void wire_enter(struct sim_proc *proc);

void wire_kill(struct sim_proc *proc); /* before its links are freed */
/* Its peers may end their sessions with it: it is stopped, or stuck. It has no reason itself. */
void wire_excuse(struct sim_proc *proc);
/* It stands still for a while: a handshake of its may last, all in all, longer than anybody waits. */
void wire_slow(struct sim_proc *proc);
void wire_excuse_handshakes(void); /* all that are under way: the clock jumps */

uint64_t wire_n_ended(void); /* sessions, so far */
/* Whether they have a session, which carries something. */
bool wire_joins(const struct sim_proc *a, const struct sim_proc *b);

/* At random; false: there is no stream. */
bool wire_cut_one(void);
bool wire_silence_one(uint64_t us);

#endif
