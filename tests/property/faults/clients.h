/* clients — those of one router: they ask, read their streams, sometimes leave, and complain unless
 * they get exactly their tokens, or an error that what happened allows.
 */
#ifndef WEFT_TESTS_FAULTS_CLIENTS_H
#define WEFT_TESTS_FAULTS_CLIENTS_H

#include "api/api.h"
#include "property/faults/cluster.h"

#define CLIENTS_MAX 64u
#define PROMPT_MAX 160u

struct client {
    weft_api_call *call; /* NULL: nobody is here */
    uint32_t prompt[PROMPT_MAX], n_prompt, n_choices, max_tokens;
    uint32_t stop_token; /* N_VOCAB: none */
    uint64_t seed, prompt_hash;
    uint32_t n_seen[4]; /* tokens of each choice that were right */
    uint64_t came_at_us, leaves_at_us;
    uint64_t timeout_us;     /* its own; 0: none */
    uint64_t n_ended_before; /* sessions that had ended when it came */
};

struct clients {
    struct weft_api_state *api;
    uint32_t router;
    struct client list[CLIENTS_MAX];
    uint64_t next_at_us, n_ever;
    bool is_closed;
    uint64_t able_at_us;  /* when a scheduler was last there for this router, */
    uint64_t was_able_us; /* and for how long without a break; 0: none is there */
};

/* A newcomer if it is time, and whoever leaves. */
void clients_come_and_go(struct clients *clients);
/* Looks at everybody's tokens and ends. */
void clients_look(struct clients *clients);
void clients_drop_all(struct clients *clients);
uint32_t clients_count(const struct clients *clients);

#endif
