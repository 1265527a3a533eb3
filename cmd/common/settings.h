/* settings — every setting of every program, once: who expands the list gets the fields of struct
 * weft_config from it (config.h), or the table by which they are read and printed (config.c). A new
 * setting is a row here, and what uses its field.
 *
 * X(field, kind, name, programs, least, most, value, arg, help)
 *   kind      TEXT, TEXTS (may be given again: a line for each), LIST (the same, but the lines of a
 *             stronger source take the place of a weaker one's), WORD (one of a few), U32, AUTO (a
 *             U32, or "auto"), U64, SIZE (as "512MiB"), I32, FD, F32 or FLAG; its type in C is below
 *   name      "max-num-seqs": flag --max-num-seqs, variable WEFT_MAX_NUM_SEQS, the same in files
 *   programs  bits of enum weft_program, without WEFT_PROG_, or groups of them (config.c)
 *   least, most   of numbers; a U64 may be any
 *   value     default, as text; NULL: the field is NULL, 0 or false. So are the fields of what a
 *             program does not know; its descriptors are -1.
 *   arg       what --help shows after the flag; NULL: nothing. Of a WORD "auto|on|off": all that it
 *             may be.
 * Two rows may share a name if no program knows both.
 * HEAD(title) stands above the rows that --help shows together under that title.
 * KNOB is that of base/sampling.h, whose parameters are settings of `weft run` and
 * `weft chat`. */
#ifndef WEFT_CMD_SETTINGS_H
#define WEFT_CMD_SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/grammar.h"
#include "base/limits.h"
#include "base/sampling.h"

#define WEFT_BENCH_REPS_MAX 100 /* --reps: their rates are kept until the medians are known */
#define WEFT_SETTING_MS_MAX 86400000.0 /* a day */

#define WEFT_CONFIG_AUTO UINT32_MAX

/* Said where the number of workers is a flag's, or later if it is the machine's. */
#define WEFT_CONFIG_LAYOUT_WHY                                                                     \
    "--layout tp divides a model among 2, 4 or 8 workers, not %u; with --tp N groups of N "        \
    "workers "                                                                                     \
    "have a model each"
#define WEFT_CONFIG_GROUPS_WHY "%u worker%s no groups of %u, as --tp asks"

/* Kinds in C. */
#define WEFT_SETTING_TEXT const char *  /* borrowed, or kept for the process's life */
#define WEFT_SETTING_TEXTS const char * /* the same */
#define WEFT_SETTING_LIST const char *  /* the same */
#define WEFT_SETTING_WORD const char *  /* the same */
#define WEFT_SETTING_U32 uint32_t
#define WEFT_SETTING_AUTO uint32_t /* WEFT_CONFIG_AUTO, or a number below */
#define WEFT_SETTING_U64 uint64_t
#define WEFT_SETTING_SIZE uint64_t
#define WEFT_SETTING_I32 int32_t
#define WEFT_SETTING_FD int32_t
#define WEFT_SETTING_F32 double /* of base/sampling.h, which rounds it later */
#define WEFT_SETTING_FLAG bool
#define WEFT_SETTING_PASS_OVER(...)

/* clang-format off */
#define WEFT_SETTINGS(X, KNOB, HEAD)                                                               \
    HEAD("Batch")                                                                                  \
    X(batch_file, TEXT, "batch", RUN_BATCH, 0, 0, NULL, "FILE",                                    \
      "the requests, one a line; \"-\": standard input")                                           \
    X(batch_output, TEXT, "output", RUN_BATCH, 0, 0, NULL, "FILE",                                 \
      "where answers go, after those that it has already: their lines are not asked again "        \
      "(default: standard output)")                                                                \
    HEAD("Prompt")                                                                                 \
    X(prompt, TEXT, "prompt", RUN, 0, 0, NULL, "TEXT",                                             \
      "the text to go on with; \"-\": standard input, as without it where that is a pipe")         \
    X(prompt_ids, TEXT, "prompt-ids", RUN, 0, 0, NULL, "1,2,3", "the same as token ids")           \
    X(chat, FLAG, "chat", RUN, 0, 0, NULL, NULL,                                                   \
      "the prompt is a user's message, put into the model's chat template")                        \
    X(system, TEXT, "system", TALK, 0, 0, NULL, "TEXT", "the chat's system message")               \
    X(n_predict, U32, "n-predict", RUN, 1, WEFT_CONTEXT_MAX, "64", "N",                            \
      "tokens to generate")                                                                        \
    X(chat_predict, U32, "n-predict", CHAT, 0, WEFT_CONTEXT_MAX, "0", "N",                         \
      "most tokens of an answer; 0: what the context has room for")                                \
    X(chat_session, TEXT, "session", CHAT, 0, 0, NULL, "FILE",                                     \
      "go on with the conversation kept in FILE and FILE.json, if it is there; keep it there")     \
    X(ignore_eos, FLAG, "ignore-eos", RUN, 0, 0, NULL, NULL, "go on after the end of the text")    \
                                                                                                   \
    HEAD("Sampling")                                                                               \
    WEFT_SAMPLING_LIST(KNOB, WEFT_SETTING_PASS_OVER)                                               \
    X(samplers, TEXT, "samplers", TALK, 0, 0, NULL, "NAME,...",                                    \
      "their order, without those that shall not run: penalties, dry, top_n_sigma, temperature, "  \
      "min_p, top_k, top_p, typical_p, tfs_z, xtc, adaptive_p")                                    \
    X(sampler_variant, WORD, "sampler-variant", TALK, 0, 0, "vllm", "vllm|llama.cpp",              \
      "whose definition of a sampler, where engines differ")                                       \
    X(seed, U64, "seed", TALK | BENCH_SERVE, 0, 0, "0", "N", "of the random numbers")              \
                                                                                                   \
    HEAD("Input and output")                                                                       \
    X(tensors, FLAG, "tensors", INSPECT, 0, 0, NULL, NULL, "list the tensors, too")                \
    X(plan, FLAG, "plan", PLAN, 0, 0, NULL, NULL,                                                  \
      "tell what weft serve would need, and how fast it could be")                                 \
    X(no_bos, FLAG, "no-bos", TOKENIZE, 0, 0, NULL, NULL,                                          \
      "leave out what the tokenizer puts around a text")                                           \
    X(no_parse_special, FLAG, "no-parse-special", TOKENIZE, 0, 0, NULL, NULL,                      \
      "special tokens written out in the text are ordinary text")                                  \
    X(message_format, TEXT, "format", PARSE_OUTPUT, 0, 0, NULL, "NAME|MODEL",                      \
      "how the outputs are written: a format's name, or a model whose chat template says it")      \
    X(chunk, U32, "chunk", PARSE_OUTPUT, 0, 1u << 30, "0", "N",                                    \
      "read the outputs in pieces of so many bytes; 0: whole")                                     \
    X(cases, TEXT, "cases", TEMPLATE | GRAMMAR | PARSE_OUTPUT | SAMPLE, 0, 0, NULL, "FILE",                                \
      "JSON: a template's variables for each case, texts for a grammar, models' outputs, or samplers")                        \
    X(schema, TEXT, "schema", GRAMMAR, 0, 0, NULL, "FILE", "a JSON Schema")                        \
    X(regex, TEXT, "regex", GRAMMAR, 0, 0, NULL, "RE",                                             \
      "a regular expression that all of a text must match")                                        \
    X(gbnf, TEXT, "gbnf", GRAMMAR, 0, 0, NULL, "FILE", "a grammar in llama.cpp's notation")        \
    X(lark, TEXT, "lark", GRAMMAR, 0, 0, NULL, "FILE", "a grammar in Lark's notation")             \
    X(tags, TEXT, "tags", GRAMMAR, 0, 0, NULL, "FILE", "structural tags")                          \
    X(thinking, WORD, "thinking", GRAMMAR, 0, 0, "none", "none|open|maybe",                        \
      "what stands before a text: nothing; all up to the first \"</think>\"; that behind a "       \
      "\"<think>\", or nothing")                                                                   \
    X(tokenizer, TEXT, "tokenizer", GRAMMAR, 0, 0, NULL, "MODEL",                                  \
      "check the texts in tokens of this model, too")                                              \
    X(force, FLAG, "force", PACK, 0, 0, NULL, NULL, "replace OUT if it is there already")          \
    X(json, FLAG, "json", RUN | PLAN | BENCH | BENCH_SERVE | TOKENIZE | TEMPLATE | GRAMMAR | PARSE_OUTPUT | SAMPLE, 0, 0, NULL,   \
      NULL,                                                                                        \
      "print JSON")                                                                                \
                                                                                                   \
    X(kl_divergence, FLAG, "kl-divergence", WEFT_PROG_PERPLEXITY, 0, 0, NULL, NULL,                \
      "print how far the predictions are from those of f32 activations and KV cache, too: the "    \
      "mean Kullback-Leibler divergence, in nats")                                                 \
                                                                                                   \
    HEAD("Calibration")                                                                            \
    X(calibrate, TEXT, "calibrate", QUANTISERS, 0, 0, NULL, "FILE",                                \
      "a text that tells which columns of q8 and q4 weights matter")                               \
    X(calibration, WORD, "calibration", QUANTISERS, 0, 0, "error",                                 \
      "error|minmax|percentile|entropy", "where codes end")                                        \
    X(mixed, FLAG, "mixed", QUANTISERS, 0, 0, NULL, NULL,                                          \
      "keep the layers wider that cost most perplexity on that text")                              \
    X(mixed_keep, I32, "mixed-keep", QUANTISERS, -1, 1e6, "-1", "N",                               \
      "so many of them; -1: those over twice the median, at most a quarter")                       \
                                                                                                   \
    HEAD("Another machine")                                                                        \
    X(plan_bandwidth, F32, "bandwidth", PLAN, 0, 1e6, "0", "X",                                    \
      "GB/s of its memory; 0: this machine's, which is measured")                                  \
    X(plan_peak, F32, "peak", PLAN, 0, 1e9, "0", "X",                                              \
      "GFLOP/s of its products; 0: this machine's where nothing is said of the other, else no "    \
      "prompts are foreseen")                                                                      \
    X(plan_memory, SIZE, "memory", PLAN, 0, 1e15, NULL, "SIZE",                                    \
      "its memory, all of it free (default: what this one has left)")                              \
                                                                                                   \
    HEAD("Measuring")                                                                              \
    X(bench_prompt, TEXT, "bench-prompt", BENCH, 0, 0, "512", "LIST",                              \
      "tokens of a prompt")                                                                        \
    X(bench_gen, U32, "gen", BENCH, 1, WEFT_CONTEXT_MAX, "128", "N", "tokens to generate")         \
    X(bench_batch, TEXT, "batch", BENCH, 0, 0, "1,4,16", "LIST",                                   \
      "sequences that generate at once")                                                           \
    X(bench_context, U32, "context", BENCH, 1, WEFT_CONTEXT_MAX, "32", "N",                        \
      "tokens that are there before them")                                                         \
    X(bench_reps, U32, "reps", BENCH, 1, WEFT_BENCH_REPS_MAX, "5", "N",                            \
      "times to measure; medians are printed")                                                     \
    X(bench_profile, FLAG, "profile", BENCH, 0, 0, NULL, NULL,                                     \
      "a roofline table of the operators for each prompt and batch")                               \
    X(bench_trace, TEXT, "trace", BENCH, 0, 0, NULL, "FILE",                                       \
      "write the last repetition's steps as a Chrome trace")                                       \
    X(bench_experts, TEXT, "expert-profile", BENCH, 0, 0, NULL, "FILE",                            \
      "write how many tokens each expert got, for weft serve --expert-profile")                    \
    X(bench_text, TEXT, "expert-text", BENCH, 0, 0, NULL, "FILE",                                  \
      "count those of this text, not of the made-up tokens that are measured with")                \
                                                                                                   \
    HEAD("Load")                                                                                   \
    X(load_concurrency, U32, "concurrency", BENCH_SERVE, 1, 4096, "16", "N",                       \
      "clients, each with one request or conversation at a time; with --rate or --trace there "    \
      "are as many as it takes, or at most so many if this is given")                              \
    X(load_requests, U32, "requests", BENCH_SERVE, 0, 1e6, "0", "N",                               \
      "of all clients together; 0: three for each, all --turns of one, or all of --trace")         \
    X(load_prompt_tokens, U32, "prompt-tokens", BENCH_SERVE, 1, WEFT_CONTEXT_MAX, "128", "N",      \
      "random token ids in a prompt")                                                              \
    X(load_max_tokens, U32, "max-tokens", BENCH_SERVE, 1, WEFT_CONTEXT_MAX, "64", "N",             \
      "tokens that a request asks for")                                                            \
    X(load_vocab, U32, "vocab", BENCH_SERVE, 1, WEFT_VOCAB_MAX, "1000", "N",                       \
      "token ids of prompts are below it")                                                         \
    X(load_arrivals, WORD, "arrivals", BENCH_SERVE, 0, 0, "auto",                                  \
      "auto|closed|poisson|gamma|fixed|trace",                                                     \
      "when requests come; auto: as --trace has it, or gamma at --rate, or closed: whenever a "    \
      "client is free")                                                                            \
    X(load_rate, F32, "rate", BENCH_SERVE, 0, 1e6, "0", "X",                                       \
      "requests (or conversations) per second; beside --trace, its speed is changed to that; 0: "  \
      "none")                                                                                      \
    X(load_burstiness, F32, "burstiness", BENCH_SERVE, 0.001, 1000, "1", "X",                      \
      "shape of the gaps' gamma distribution; 1: Poisson, less: bursts, more: even gaps")          \
    X(load_trace, TEXT, "trace", BENCH_SERVE, 0, 0, NULL, "FILE",                                  \
      "recorded requests: Azure's CSV or Mooncake's JSON lines")                                   \
    X(load_scale, U32, "scale", BENCH_SERVE, 1, 1000000, "1", "N",                                 \
      "divide the trace's lengths, and its blocks of equal tokens")                                \
    X(load_output_scale, U32, "output-scale", BENCH_SERVE, 0, 1000000, "0", "N",                   \
      "divide the lengths of its answers; 0: as --scale")                                          \
    X(load_min_output, U32, "min-output", BENCH_SERVE, 1, WEFT_CONTEXT_MAX, "1", "N",              \
      "least length of them")                                                                      \
    X(load_turns, U32, "turns", BENCH_SERVE, 1, 1000, "1", "N",                                    \
      "turns of a conversation; each sends all that was said before")                              \
    X(load_turn_tokens, U32, "turn-tokens", BENCH_SERVE, 0, WEFT_CONTEXT_MAX, "0", "N",            \
      "what each turn after the first adds; 0: --prompt-tokens")                                   \
    X(load_chat, FLAG, "chat", BENCH_SERVE, 0, 0, NULL, NULL,                                      \
      "messages of words to /v1/chat/completions, instead of token ids")                           \
    X(load_goodput, TEXT, "goodput", BENCH_SERVE, 0, 0, NULL, "BOUNDS",                            \
      "count the requests within bounds in ms, such as ttft:2000,itl:200; itl is for 99 % of a "   \
      "request's times between tokens, tpot their mean, e2el the whole")                           \
    X(load_ttft_deadlines, TEXT, "ttft-deadlines", BENCH_SERVE, 0, 0, NULL, "LIST",                \
      "milliseconds; each request draws one, sends it as x-llm-d-slo-ttft-ms, and has it as its "  \
      "ttft bound")                                                                                \
    X(load_header, TEXTS, "header", BENCH_SERVE, 0, 0, NULL, "NAME:VALUE",                         \
      "send this header; may be given several times")                                              \
    X(load_extra, TEXT, "extra", BENCH_SERVE, 0, 0, NULL, "JSON",                                  \
      "an object with fields for each request, such as {\"model\":\"x\"}")                         \
    X(load_timeout_ms, U32, "request-timeout", BENCH_SERVE, 0, WEFT_SETTING_MS_MAX, "0", "MS",     \
      "give up requests that take longer; 0: never")                                               \
    X(load_svg, TEXT, "svg", BENCH_SERVE, 0, 0, NULL, "FILE",                                      \
      "plot the times over the run")                                                               \
                                                                                                   \
    HEAD("Serving")                                                                                \
    X(host, TEXT, "host", FRONT, 0, 0, "127.0.0.1", "ADDR",                                        \
      "address to listen on; of a name's addresses the first that this machine has")               \
    X(port, U32, "port", FRONT, 0, 65535, "8080", "N", "HTTP port; 0: any free one")               \
    X(rpc_port, U32, "rpc-port", FRONT, 0, 65535, "8081", "N",                                     \
      "MessagePack-RPC port; 0: any free one")                                                     \
    X(no_rpc, FLAG, "no-rpc", FRONT, 0, 0, NULL, NULL, "no MessagePack-RPC")                       \
    X(replace, FLAG, "replace", FRONT, 0, 0, NULL, NULL,                                           \
      "when the model is loaded take the ports of this user's server that has them, and let it "   \
      "finish; where none runs, start as without")                                                 \
    X(served_model_name, TEXT, "served-model-name", ASKED, 0, 0, NULL, "NAME,...",                 \
      "the model's names in the API, comma-separated: requests may use any, answers carry the "    \
      "first (default: MODEL without folders and ending)")                                                \
    X(n_workers, AUTO, "workers", SUPERVISORS | WORKER | PLAN, 1, WEFT_WORKERS_MAX, "auto", "N",                \
      "worker processes that share this machine, 1 to 32; auto: one per NUMA node, or per list "   \
      "of --cpus")                                                                                 \
    X(cpus, TEXT, "cpus", SUPERVISORS | PLAN, 0, 0, NULL, "LIST/...",                                           \
      "CPUs of each worker, such as 0-7/8-15 (default: equal parts, node by node)")                \
    X(layout, WORD, "layout", SUPERVISORS | PLAN, 0, 0, "auto", "auto|replica|tp",                              \
      "replica: each worker computes by itself with all of the model; tp: groups of workers divide " \
      "it; auto: tp if --tp is given")                                                             \
    X(n_ranks, U32, "tp", SUPERVISORS | WORKER | PLAN, 0, 8, "0", "N",                                          \
      "workers of a group that divides the model: 2, 4 or 8; 0: all that there are, with --layout " \
      "tp")                                                                                        \
    X(expert_profile, TEXT, "expert-profile", SUPERVISORS | WORKER | PLAN, 0, 0, NULL, "FILE",                  \
      "with --layout tp, give each rank experts of about equal use, by a profile of weft bench")   \
    X(drain_delay_ms, U32, "drain-delay", FRONT, 0, WEFT_SETTING_MS_MAX, "0", "MS",                \
      "on SIGTERM go on serving for so long, while /health is 503 and load balancers notice")      \
    X(drain_timeout_ms, U32, "drain-timeout", FRONT, 0, WEFT_SETTING_MS_MAX, "30000", "MS",        \
      "then running requests have so long to end")                                                 \
    X(restart_grace_ms, U32, "restart-grace", FRONT, 0, WEFT_SETTING_MS_MAX, "5000", "MS",         \
      "new requests wait so long for a worker or scheduler that is being replaced")                \
                                                                                                   \
    HEAD("API")                                                                                    \
    X(api_key, TEXT, "api-key", SECRET, 0, 0, NULL, "KEY", "the bearer token of the API")          \
    X(api_key_file, TEXT, "api-key-file", FRONT, 0, 0, NULL, "FILE",                               \
      "the same from a file, one key per line")                                                    \
    X(allowed_origins, TEXT, "allowed-origins", FRONT, 0, 0, "*", "LIST",                          \
      "origins allowed by CORS, comma-separated")                                                  \
    X(max_connections, U32, "max-connections", FRONT | PLAN, 1, 1000000, "16384", "N",                    \
      "client connections at once")                                                                \
    X(max_body_bytes, SIZE, "max-body", ASKED | PLAN, 1024, WEFT_BODY_BYTES_MAX, "32MiB", "SIZE",         \
      "largest request body")                                                                      \
    X(strict_fields, FLAG, "strict-fields", ASKED, 0, 0, NULL, NULL,                               \
      "refuse requests that have a field which is not known here")                                 \
    X(max_logprobs, I32, "max-logprobs", ASKED, -1, WEFT_VOCAB_MAX, "20", "N",                     \
      "most log-probabilities per token a request may ask for; -1: all of the vocabulary")                                    \
    X(max_logprob_bytes, SIZE, "max-logprob-bytes", ASKED | PLAN, 4096, 1e12, "64MiB", "SIZE",            \
      "memory one request's log-probabilities may take at a time")                                 \
    X(request_memory, SIZE, "request-memory", ASKED | SCHEDULER | WORKER | PLAN, 0, 1e15, NULL, "SIZE",\
      "memory of all requests and answers in the router, half for each; a body has at most a "     \
      "quarter of it, and --max-body is lowered to that; 0: 8 x --max-body and 4 x "               \
      "--max-logprob-bytes, and what small ones take, or a 64th of --memory-limit (default: 0)")   \
    X(responses_bytes, SIZE, "responses-store", FRONT | PLAN, 0, 1e12, "0", "SIZE",                       \
      "memory for responses that are kept, to be gone on with or asked for; 0: none are")          \
    X(responses_ttl_s, U32, "responses-ttl", FRONT, 1, 31536000, "3600", "SECONDS",                \
      "how long each is kept at most")                                                             \
    X(batch_store, TEXT, "batch-store", FRONT, 0, 0, NULL, "DIR",                                  \
      "folder for /v1/files and /v1/batches, which are off without one")                           \
    X(batch_store_bytes, SIZE, "batch-store-size", FRONT, 65536, 1e15, "4GiB", "SIZE",             \
      "of all of its files; more wait, or are refused")                                            \
    X(batch_file_bytes, SIZE, "batch-file-size", FRONT, 1024, 1e12, "200MiB", "SIZE",              \
      "largest file that can be uploaded")                                                         \
    X(batch_ttl_s, U32, "batch-ttl", FRONT, 1, 31536000, "2592000", "SECONDS",                     \
      "how long files and batches that are over are kept")                                         \
    X(client_stall_timeout_ms, U32, "client-stall-timeout", FRONT, 100, WEFT_SETTING_MS_MAX,       \
      "60000", "MS", "drop a client that takes next to no bytes for so long")                      \
    X(request_timeout_ms, U32, "request-timeout", FRONT, 0, WEFT_SETTING_MS_MAX, "0", "MS",        \
      "end requests that take longer; 0: never")                                                   \
    X(idle_timeout_ms, U32, "idle-timeout", FRONT, 100, WEFT_SETTING_MS_MAX, "75000", "MS",        \
      "close idle connections and unfinished requests")                                            \
    X(json_whitespace, U32, "json-whitespace", ASKED | GRAMMAR, 0, WEFT_GRAMMAR_BLANKS_MAX, "1",   \
      "N",                                                                                         \
      "blanks in JSON that follows a schema: 1: at most one, behind ',' and ':'; 0: none; more: up " \
      "to so many of any kind, wherever JSON has them")                                            \
    X(json_max_digits, U32, "json-max-digits", ASKED | GRAMMAR, 1, WEFT_GRAMMAR_DIGITS_MAX, "64",  \
      "N", "digits of its numbers, on either side of the point")                                   \
    X(sse_keepalive_ms, U32, "sse-keepalive", FRONT, 50, WEFT_SETTING_MS_MAX, "5000", "MS",        \
      "comment line in a stream that is silent for so long")                                       \
                                                                                                   \
    HEAD("Scheduling")                                                                             \
    X(max_num_seqs, U32, "max-num-seqs", ENGINE | SCHEDULER, 1, WEFT_SEQS_MAX, "64", "N",          \
      "sequences that a worker computes at once")                                                  \
    X(max_num_batched_tokens, U32, "max-num-batched-tokens", ENGINE | SCHEDULER, 1,                \
      WEFT_BATCHED_TOKENS_MAX, "512", "N", "tokens per step")                                      \
    X(max_queue, U32, "max-queue", FRONT | SCHEDULER | PLAN, 1, WEFT_QUEUE_MAX, "1024", "N",              \
      "requests that may wait; more are answered 429")                                             \
    X(itl_target_ms, AUTO, "itl-target-ms", SERVE | SCHEDULER, 0, 60000, "auto", "MS",             \
      "prompts make no step of running streams longer, by estimate; auto: by two fifths of what "   \
      "the streams take, more where many prompts wait for few streams; 0: no such bound")                                                  \
    X(scheduling_policy, WORD, "scheduling-policy", SERVE | SCHEDULER, 0, 0, "fcfs",               \
      "fcfs|priority|edf",                                                                         \
      "who goes first: who came first, the lowest priority, or the earliest deadline")             \
    X(max_queued_tokens, U32, "max-queued-tokens", SERVE | SCHEDULER, 0, 4e9, "0", "N",            \
      "tokens of requests that may wait; beyond them 503 is answered; 0: no bound")                \
    X(no_prefix_cache, FLAG, "no-prefix-cache", ASKED | SCHEDULER | WORKER, 0, 0, NULL, NULL,               \
      "compute each prompt anew, also where another began with the same tokens")                   \
    X(session_ttl_s, U32, "session-ttl", FRONT | SCHEDULER, 0, 31536000, "3600", "SECONDS",        \
      "what a request with a session_id has computed is kept so long for the next; 0: it is not")  \
    X(max_sessions, U32, "max-sessions", FRONT | SCHEDULER, 1, WEFT_SESSIONS_MAX, "256", "N",      \
      "sessions of a worker; together they hold at most half of its KV blocks, and give way")      \
    X(prefix_cache_per_key, FLAG, "prefix-cache-per-key", FRONT, 0, 0, NULL, NULL,                 \
      "API keys of different names share nothing cached, so none learns what another asked")       \
    X(queue_timeout_ms, U32, "queue-timeout", SERVE | SCHEDULER, 0, WEFT_SETTING_MS_MAX, "0",      \
      "MS", "end requests that wait longer for a place; 0: never")                                 \
    X(run_timeout_ms, U32, "run-timeout", SERVE | SCHEDULER, 0, WEFT_SETTING_MS_MAX, "0", "MS",    \
      "end requests that run longer; 0: never")                                                    \
                                                                                                   \
    HEAD("Speculative decoding")                                                                   \
    X(speculative_model, TEXT, "speculative-model", SUPERVISORS | SCHEDULER | WORKER | PLAN, 0, 0, NULL,        \
      "MODEL",                                                                                     \
      "guess by what a small model with the same vocabulary says, where --speculative-ngram finds " \
      "nothing")                                                                                   \
    X(speculative_mtp, FLAG, "speculative-mtp", SUPERVISORS | SCHEDULER | WORKER | PLAN, 0, 0, NULL, \
      NULL,                                                                                        \
      "guess by the layer that the model has for it (multi-token prediction), where "              \
      "--speculative-ngram finds nothing")                                                         \
    X(speculative_ngram, U32, "speculative-ngram", SUPERVISORS | SCHEDULER | WORKER | PLAN, 0,                  \
      WEFT_SPEC_NGRAM_MAX, "0", "N",                                                               \
      "guess that what came after the same N tokens before, or fewer down to 2, comes again; 0: "  \
      "guess nothing")                                                                             \
    X(num_speculative_tokens, AUTO, "num-speculative-tokens", SUPERVISORS | SCHEDULER, 1,                \
      WEFT_SPEC_TOKENS_MAX, "auto", "K",                                                           \
      "tokens that a sequence guesses in a step; auto: as many as pay, by what came true and what " \
      "a step takes")                                                                              \
                                                                                                   \
    HEAD("Model and memory")                                                                       \
    X(chat_template, TEXT, "chat-template", ASKED | TALK, 0, 0, NULL, "FILE",                      \
      "use this chat template, not the model's")                                                   \
    X(tool_call_parser, TEXT, "tool-call-parser", ASKED, 0, 0, "auto", "auto|NAME",                \
      "format of the model's calls of tools and thoughts, hermes for one; auto: as its template looks") \
    X(runner, WORD, "runner", ASKED, 0, 0, "auto", "auto|generate|pooling",                        \
      "what the model is served for, text or embeddings; auto: as its files say")                  \
    X(lora, LIST, "lora", ASKED, 0, 0, NULL, "NAME=PATH",                                          \
      "a LoRA adapter: a PEFT folder or a GGUF file, served as model NAME; may be given again")    \
    X(max_loras, U32, "max-loras", SUPERVISORS | WORKER | PLAN, 0, WEFT_LORAS_MAX, "64", "N",                   \
      "adapters at a time; 0: none")                                                               \
    X(max_lora_rank, U32, "max-lora-rank", SUPERVISORS | WORKER | PLAN, 1, 256, "256", "N",                     \
      "highest rank of an adapter")                                                                \
    X(max_lora_memory, SIZE, "max-lora-memory", SERVE | WORKER | PLAN, 0, 1e15, NULL, "SIZE",             \
      "memory of a worker's adapters (default: its part of a third of what the model leaves free)")   \
    X(dtype, WORD, "dtype", ENGINE | PACK, 0, 0, "auto", "auto|f32|bf16|f16|q8|q4",                \
      "type of the weights (bfloat16 and half are known, too); auto: as the file has them")        \
    X(quant_scheme, WORD, "quant-scheme", ENGINE | PACK, 0, 0, "auto",                             \
      "auto|channel|group|group-asym",                                                             \
      "how q8 and q4 quantise; auto is channel for q8, group-asym for q4")                         \
    X(activations, WORD, "activations", ENGINE, 0, 0, "auto", "auto|f32|bf16|int8",                \
      "what products take in; f32 is the exact mode; bf16 for blocks, too, where the CPU has AMX (not for "   \
      "--dtype q8 by channel): faster prompts, slower single streams")                                              \
    X(memory_limit, SIZE, "memory-limit", SUPERVISORS | WORKER | TALK | PLAN, 0, 1e15, NULL, "SIZE",                           \
      "memory of all processes together: the KV cache gets what the rest leaves, and what does not " \
      "fit is refused at the start, with the sum (default: none)")                                  \
    X(memory_terms, TEXT, "memory-terms", WORKER, 0, 0, NULL, "TERMS",                             \
      "what of --memory-limit is not the workers', or of their heaps")                             \
    X(kv_dtype, WORD, "kv-dtype", ENGINE, 0, 0, "auto", "auto|f32|bf16|f16|int8",                  \
      "type of the KV cache; auto is bf16, or f32 with f32 activations")                           \
    X(kv_memory, SIZE, "kv-memory", ENGINE, 0, 1e15, NULL, "SIZE",                                 \
      "memory of a worker's KV cache (default: what the sequences can use, at most its part "      \
      "of half of what is free)")                                                                  \
    X(state_checkpoints, AUTO, "state-checkpoints", SUPERVISORS | WORKER | PLAN, 0,                      \
      WEFT_STATE_CHECKPOINTS_MAX, "auto", "N",                                                           \
      "states of recurrent layers that a worker keeps for the prefix cache; auto: as many as "     \
      "sequences, in 1 GiB, but 4 at least; 0: nothing is cached of such models")                  \
    X(kv_spill, SIZE, "kv-spill", SUPERVISORS | WORKER, 0, 1e15, NULL, "SIZE",                           \
      "size of a worker's file for KV blocks of preempted sequences; 0: none")                     \
    X(kv_spill_dir, TEXT, "kv-spill-dir", SUPERVISORS | WORKER, 0, 0, NULL, "DIR",                       \
      "where that file is, without a name (default: TMPDIR, or /var/tmp)")                         \
    X(session_dir, TEXT, "session-dir", SERVE | WORKER, 0, 0, NULL, "DIR",                         \
      "where sessions are saved to and restored from (default: they are not)")                     \
    X(session_dir_bytes, SIZE, "session-dir-size", SERVE | WORKER, 0, 1e15, "64GiB", "SIZE",       \
      "the most that the files there may take together")                                           \
    X(block_size, U32, "block-size", ENGINE, 16, WEFT_BLOCK_SIZE_MAX, "16", "N",                   \
      "tokens per KV block; a multiple of 16")                                                     \
    X(max_model_len, U32, "max-model-len", ENGINE, 0, WEFT_CONTEXT_MAX, "0", "N",                  \
      "longest sequence; 0: the model's context, more is at your own risk")                          \
    X(threads, U32, "threads", ENGINE | PACK, 0, WEFT_THREADS_MAX, "0", "N",                       \
      "compute threads of a worker; 0: one per CPU that affinity and the cgroup's quota allow")    \
                                                                                                   \
    HEAD("Links between processes")                                                                \
    X(scheduler_url, LIST, "scheduler-url", ROUTER | SCHEDULER, 0, 0, NULL, "URL",                 \
      "where routers meet the scheduler; a router may have several schedulers: given again, or "   \
      "with commas")                                                          \
    X(worker_url, TEXT, "worker-url", SCHEDULER | WORKER, 0, 0, NULL, "URL",                       \
      "where the worker meets the scheduler; to the scheduler one for each, comma-separated")      \
    X(http_fd, FD, "http-fd", ROUTER, -1, 1e6, "-1", "FD",                                         \
      "a socket that listens, in place of --host and --port")                                      \
    X(rpc_fd, FD, "rpc-fd", ROUTER, -1, 1e6, "-1", "FD",                                           \
      "the same for MessagePack-RPC, in place of --rpc-port")                                      \
    /* What the first router that was ready had read; those before it are not given one. */        \
    X(batch_fd, FD, "batch-fd", ROUTER, -1, 1e6, "-1", "FD",                                       \
      "the requests of weft run --batch: they are answered, and nobody else's")                    \
    X(answers_fd, FD, "answers-fd", ROUTER, -1, 1e6, "-1", "FD", "where their answers go")         \
    X(model_identity, TEXT, "model-identity", ROUTER, 0, 0, NULL, "TEXT",                          \
      "end where the model's tokenizer, template or defaults are not these")                       \
    X(model_root, TEXT, "model-root", ROUTER, 0, 0, NULL, "TEXT",                                  \
      "what the API calls the model's path (default: MODEL)")                                      \
    X(link, WORD, "link", SERVE, 0, 0, "abstract", "abstract|ipc|tcp|tls",                         \
      "how the processes talk; tls makes certificates of its own")                                 \
    X(link_cert, TEXT, "link-cert", ACTORS, 0, 0, NULL, "FILE",                                    \
      "certificate for tls+tcp:// links, PEM")                                                     \
    X(link_key, TEXT, "link-key", ACTORS, 0, 0, NULL, "FILE", "its private key, PEM")              \
    X(link_ca, TEXT, "link-ca", ACTORS, 0, 0, NULL, "FILE",                                        \
      "the authority that signed the certificates of all peers, and of nobody else, PEM")          \
    X(insecure_links, FLAG, "insecure-links", ACTORS, 0, 0, NULL, NULL,                            \
      "allow plain tcp:// links beyond the loopback address")                                      \
    X(rank, U32, "rank", WORKER, 0, 7, "0", "N", "which worker of its group this one is")          \
    X(group_fd, FD, "group-fd", WORKER, -1, 1e6, "-1", "FD",                                       \
      "memfd in which the workers of a group meet")                                                \
    X(mpi, FLAG, "mpi", WORKER, 0, 0, NULL, NULL,                                                  \
      "the workers that mpirun has started are a group (only in builds with MPI)")                 \
    X(weights_fd, FD, "weights-fd", WORKER, -1, 1e6, "-1", "FD",                                   \
      "memfd that keeps the packed weights")                                                       \
    X(weights_copies, U32, "weights-copies", WORKER, 0, WEFT_WORKERS_MAX, "0", "N",                \
      "copies of the packed weights that workers make at the same time, one per NUMA node; 0: 1")  \
    X(status_fd, FD, "status-fd", ACTORS, -1, 1e6, "-1", "FD",                                     \
      "where to tell a supervisor that all is ready")                                              \
                                                                                                   \
    HEAD("Logs and metrics")                                                                       \
    X(log_format, WORD, "log-format", EVERY, 0, 0, "text", "text|json", "form of log lines")       \
    X(log_level, WORD, "log-level", SERVE | ACTORS, 0, 0, "info", "debug|info|warn|error",         \
      "least level of what is logged")                                                             \
    X(tool_log_level, WORD, "log-level", TOOLS, 0, 0, "warn", "debug|info|warn|error",             \
      "least level of what is logged")                                                             \
    X(access_log, WORD, "access-log", FRONT, 0, 0, "off", "off|text|json",                         \
      "a line for each request that has ended")                                                    \
    X(metrics_prefix, TEXT, "metrics-prefix", FRONT, 0, 0, "weft_", "TEXT",                        \
      "prefix of metric names; \"vllm:\" keeps old dashboards")                                    \
    X(expert_metrics, WORD, "expert-metrics", SERVE | WORKER, 0, 0, "auto", "auto|on|off",         \
      "count the tokens of each expert; auto: where there are at most 4096")
/* clang-format on */

#endif
