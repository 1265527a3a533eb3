/* status — how an actor tells its supervisor that it is ready: lines on an inherited descriptor.
 *
 * "ready" (scheduler: listening; worker: weights in place and linked; router: "ready HTTP_URL
 * RPC_PORT", once the listening sockets are open and the scheduler says that it serves), "failed
 * TEXT" (it cannot go on, and starting again would not help: a bad model file, a port in use).
 */
#ifndef WEFT_CMD_STATUS_H
#define WEFT_CMD_STATUS_H

/* Writes "WORD TEXT\n" (text may be NULL) to the descriptor; fd -1: does nothing. */
void weft_status_write(int fd, const char *word, const char *text);

/* Exit status of a process after "failed": the supervisor does not restart it. */
#define WEFT_EXIT_FATAL 78

#endif
