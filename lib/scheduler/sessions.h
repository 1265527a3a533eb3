/* sessions — what is asked of a scheduler about conversations, and of its worker about their files.
 *
 * Model    Requests leave sessions (scheduler.h). Somebody may ask which a tenant has, drop one, have
 *          one written to a file of the worker's, or made of such a file. The latter two take a while:
 *          they are asked here, carried out one by one, and answered later. Plans go on meanwhile.
 * Blocks   What is written or read stays held until the worker has answered: nobody gets these blocks.
 *          Before they are written from, and before they are read into, the plans that were out when
 *          they were taken have their results, since those may write to them.
 * Bounds   WEFT_SCHED_FILES_MAX wait or are under way; more are refused.
 * Pure     As scheduler.h; the caller carries the messages (base/session.h).
 */
#ifndef WEFT_SCHEDULER_SESSIONS_H
#define WEFT_SCHEDULER_SESSIONS_H

#include "base/session.h"
#include "scheduler/scheduler.h"

#define WEFT_SCHED_FILES_MAX 16

bool weft_sched_session_has(const weft_sched *sched, uint64_t tenant, struct weft_str id);
/* Tokens that it had; 0: there is none. */
uint32_t weft_sched_session_drop(weft_sched *sched, uint64_t tenant, struct weft_str id);
/* Writes the first `n_max` of a tenant's; names are valid until the next call. Returns how many. */
uint32_t weft_sched_session_list(const weft_sched *sched, uint64_t now_us, uint64_t tenant,
                                 struct weft_session_told *told_out, uint32_t n_max);

/* SAVE or RESTORE of a router's. NOMEM, AGAIN (the limit), UNSUPPORTED: it is not taken, and gets
 * no answer but that. */
WEFT_MUST_CHECK weft_err weft_sched_session_ask(weft_sched *sched, uint64_t now_us, uint32_t router,
                                                const struct weft_session_wish *wish,
                                                struct weft_errmsg *why);
/* The next one that is answered. *answer_out is the scheduler's, valid until the next call. */
bool weft_sched_session_answered(weft_sched *sched, uint32_t *router_out,
                                 struct weft_session_answer *answer_out);

/* After plans, results and answers of the worker: what it is to do next with a file. False: nothing
 * now. *file_out is valid until the next call. */
bool weft_sched_next_file(weft_sched *sched, const struct weft_kv_file **file_out);
/* It has done so. PROTO: nobody asked for that. */
WEFT_MUST_CHECK weft_err weft_sched_filed(weft_sched *sched, uint64_t now_us,
                                          const struct weft_kv_filed *filed,
                                          struct weft_errmsg *why);

#endif
