/* Messages for tests of proto: fixed ones of every type, random ones, and deep comparison. */
#ifndef WEFT_TESTS_PROTO_MESSAGES_H
#define WEFT_TESTS_PROTO_MESSAGES_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/proto.h"

/* Fixed messages: two of each type, a plain one and one of extremes. Names are "submit",
 * "submit_max"; false: no such index. The message points to static storage and stays valid until
 * the next call. */
bool proto_sample(uint32_t idx, const char **name_out, struct weft_msg *msg_out);

/* A random valid message; its storage is valid until the next call. */
void proto_random(uint64_t *rand, struct weft_msg *msg_out);

/* Equal field by field, floats bit by bit, the targets of pointers included. Fields without meaning
 * (the token of an event that is not sampled) do not count. */
bool proto_equal(const struct weft_msg *a, const struct weft_msg *b);

#endif
