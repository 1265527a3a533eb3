/* status — how an actor tells its supervisor how it is: lines on an inherited descriptor.
 *
 *   ready               scheduler: it listens
 *   ready KV_BYTES      worker: weights in place, and linked
 *   ready URL RPC_PORT IDENTITY
 *                       router: the listening sockets are open, and the scheduler says that it
 *                       serves; what was read of the model, for --model-identity of its successor
 *   ready batch 0 IDENTITY
 *                       the same of a router that computes the batch of `weft run --batch` and listens nowhere
 *   batch DONE FAILED TOTAL BYTES
 *                       such a router, now and then: lines that have their answers, those of them whose status is
 *                       not 200, all lines, and the bytes of answers that last
 *   replaced            router: another server has its sockets; it ends when its connections have
 *   failed TEXT         it cannot go on, and starting again would not help: a bad model
 *                       file, a port in use
 *   needs TEXT          worker, before it loads: how much memory, and the limit, for the case that
 *                       it can say nothing more
 *   alive               scheduler and router, once a second when they are ready: their loops turn
 *   worked              worker, once: it has computed a step
 *   explained           scheduler: workers died of a request, which has been ended
 *
 * A supervisor kills a scheduler or router that was ready and is then silent for so long that it
 * must stand still: nobody else would, and its streams stay open, so nothing shows from outside.
 * Workers are watched by the scheduler, which knows whether they have anything to do.
 */
#ifndef WEFT_CMD_STATUS_H
#define WEFT_CMD_STATUS_H

/* "alive" comes this often; a silence of this length ends in a kill, in every build. */
#define WEFT_STATUS_ALIVE_MS 1000u
#define WEFT_STATUS_SILENT_MS 10000u

/* Writes "WORD TEXT\n" (text may be NULL) to the descriptor; fd -1: does nothing. Never blocks: a
 * line for which the pipe has no room (its reader stands still) is dropped as a whole. */
void weft_status_write(int fd, const char *word, const char *text);

/* Exit status of a process after "failed". Before the server is ready the supervisor gives up with
 * that reason; afterwards it tries again, since the same settings have worked once. */
#define WEFT_EXIT_FATAL 78

/* The same, but going on would be wrong at any time: the files of the model are not those that the
 * server began with, or the batch of `weft run` cannot be ended. */
#define WEFT_EXIT_FINAL 79

/* Of a worker: the group with which it divides the model is over, because another one has died or
 * failed. It can only be started together with the others. */
#define WEFT_EXIT_GROUP 80

#endif
