/* kind — what distinguishes one endpoint's calls from another's.
 *
 * An endpoint is one file in this folder, which fills in this struct, and its row in the list
 * below. It uses params/ to read its fields and render/ to write its answers.
 */
#ifndef WEFT_API_KINDS_KIND_H
#define WEFT_API_KINDS_KIND_H

#include <stdbool.h>
#include <stdint.h>

#include "api/call.h"
#include "api/limits.h"
#include "base/buf.h"
#include "base/session.h"
#include "codec/writer.h"

struct choice;
struct message_pieces;
struct params;
struct reader;

/* A body being written, until `w->out` has about `limit` bytes. */
struct body_piece {
    weft_api_call *call;
    struct choice *choice; /* for parts that come once: the first, or NULL if there is none */
    struct weft_writer *w;
    size_t limit;
};

/* One part of a body. True: it is complete. Until then it is called again, and writes at least one
 * item each time, so call->render.pos tells a first call from later ones. */
typedef bool (*body_part)(const struct body_piece *at);

/* Some more of one choice of a stream. */
struct render_chunk {
    struct choice *choice;
    uint32_t from, to; /* all tokens since its last one: positions of render/choice_text.h */
    bool is_last;
    const char *text; /* the text they released, */
    size_t text_len;
    const struct message_pieces
        *pieces; /* or what it tells; NULL: the kind doesn't tell messages */
};

/* How the events of a stream over HTTP lie one after another. */
struct weft_api_framing {
    const char *type;           /* of the response */
    const char *before, *after; /* each event, which is one line of JSON */
    const char *keep_alive;     /* what is sent in a silent stream; NULL: nothing may be */
};

extern const struct weft_api_framing wefti_api_framing_sse;   /* server-sent events */
extern const struct weft_api_framing wefti_api_framing_lines; /* a line each */

/* Server-sent events with names, which a kind frames itself: one chunk may be several of them, or none. */
extern const struct weft_api_framing wefti_api_framing_named;
void wefti_api_event_open(struct weft_buf *out,
                          const char *name); /* its data, of one line, follows */
void wefti_api_event_close(struct weft_buf *out);

struct weft_api_kind {
    const char *path;           /* of POST requests; http/routes.c has those of sessions */
    const char *rpc_method;     /* NULL: not over MessagePack-RPC */
    const char *id_prefix;      /* of its responses' ids: "cmpl" (a dash follows), "msg_" */
    const char *prompt_field;   /* the field at fault if a prompt is too long, */
    const char *logprobs_field; /* and if there are too many log-probabilities */
    bool names_any_token;       /* in log-probabilities, even a token that is no text by itself */
    bool logprobs_have_ids;     /* where they are lists of tokens like chat's */
    bool draws_short_seeds;     /* of 32 bits, where a request brings none */
    bool generates;             /* else the scheduler is not needed */
    bool pools;                 /* values of texts, in place of more text; */
    bool ranks;                 /* and their scores come best first */
    bool takes_tags;            /* "NAME:latest" is the model NAME */
    bool takes_suffix;          /* by that name */
    bool has_random_ids;        /* its responses */
    bool recalls;               /* earlier ones, as part of the prompt */
    bool tells_messages;        /* thoughts and calls apart from the answer (render/message.h) */
    bool is_admins;             /* only those may ask */
    bool asks_session;          /* the scheduler, about sessions: */
    enum weft_session_op session_op;
    bool takes_no_session;    /* where it is not there, that is as good as dropped */
    size_t prompt_tokens_max; /* 0: what fits the context */

    /* Reads its fields. Errors go into the reader's. */
    void (*parse)(const struct reader *r, const struct weft_api_limits *limits,
                  struct params *params);

    /* Of one that does not generate: what it does once it is parsed, in the loop's thread. True: that is
     * done, or call->error is set; false: wefti_api_call_finish will come. NULL: nothing. */
    bool (*begin)(weft_api_call *call);

    /* The body: parts for each choice, between `open_body` and parts that come once. Lists end with
     * NULL. */
    void (*open_body)(weft_api_call *call, struct weft_writer *w);
    const body_part *choice_parts, *end_parts;

    /* Streams over HTTP. NULL where there are none. */
    const struct weft_api_framing *framing;
    void (*open_choice)(struct choice *choice, struct weft_writer *w); /* NULL: no such chunk */
    /* The same of a stream that tells token ids: a chunk with the prompt's, which may be many. NULL: they
     * are told nowhere. */
    const body_part *ids_parts;
    void (*write_chunk)(const struct render_chunk *chunk, struct weft_writer *w);
    /* The last events, until `out` has about `limit` bytes. False: they are to be gone on with. */
    bool (*end_stream)(weft_api_call *call, struct weft_buf *out, size_t limit);
    /* The last event of one that failed. NULL: the error, framed like the others. */
    void (*fail_stream)(const weft_api_call *call, struct weft_buf *out);

    /* All of a stream, in place of the functions for its chunks; as weft_api_render_stream. NULL: those. */
    enum weft_api_render (*stream)(weft_api_call *call, struct weft_buf *out, size_t limit);
    uint32_t n_views; /* of each choice, that it has there */
    /* Frees call->kind_state. NULL: it has none. */
    void (*free_state)(weft_api_call *call);

    /* The value of "logprobs" in a chunk; in notifications of MessagePack-RPC, too. */
    void (*write_chunk_logprobs)(const struct render_chunk *chunk, struct weft_writer *w);
};

/* Those that answer with a call; those that answer at once are in answers.c. */
#define WEFT_API_KIND_LIST(X)                                                                      \
    X(completion)                                                                                  \
    X(chat)                                                                                        \
    X(messages)                                                                                    \
    X(count_tokens)                                                                                \
    X(tokenize)                                                                                    \
    X(detokenize)                                                                                  \
    X(llama)                                                                                       \
    X(llama_infill)                                                                                \
    X(responses)                                                                                   \
    X(ollama_generate)                                                                             \
    X(ollama_chat)                                                                                 \
    X(ollama_show)                                                                                 \
    X(embeddings)                                                                                  \
    X(pooling)                                                                                     \
    X(classify)                                                                                    \
    X(score)                                                                                       \
    X(score_v1)                                                                                    \
    X(rerank)                                                                                      \
    X(rerank_v1)                                                                                   \
    X(rerank_v2)                                                                                   \
    X(llama_embedding)                                                                             \
    X(llama_embeddings)                                                                            \
    X(ollama_embed)                                                                                \
    X(ollama_embeddings)                                                                           \
    X(session_list)                                                                                \
    X(session_drop)                                                                                \
    X(session_save)                                                                                \
    X(session_restore)                                                                             \
    X(load_lora)                                                                                   \
    X(unload_lora)                                                                                 \
    X(slot_save)                                                                                   \
    X(slot_restore)                                                                                \
    X(slot_erase)

#define X(name) extern const struct weft_api_kind wefti_api_kind_##name;
WEFT_API_KIND_LIST(X)
#undef X

/* All of them, ended by NULL. */
extern const struct weft_api_kind *const wefti_api_kinds[];

#endif
