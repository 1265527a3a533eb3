/* The list of settings as a table, the programs that know them, and names that are second names. */
#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "common/nearest.h"
#include "config_internal.h"

/* The list's programs, and groups of them. */
enum {
    SERVE = WEFT_PROG_SERVE,
    ROUTER = WEFT_PROG_ROUTER,
    SCHEDULER = WEFT_PROG_SCHEDULER,
    WORKER = WEFT_PROG_WORKER,
    RUN = WEFT_PROG_RUN,
    CHAT = WEFT_PROG_CHAT,
    BENCH = WEFT_PROG_BENCH,
    PACK = WEFT_PROG_PACK,
    BENCH_SERVE = WEFT_PROG_BENCH_SERVE,
    INSPECT = WEFT_PROG_INSPECT,
    TOKENIZE = WEFT_PROG_TOKENIZE,
    TEMPLATE = WEFT_PROG_TEMPLATE,
    GRAMMAR = WEFT_PROG_GRAMMAR,
    PARSE_OUTPUT = WEFT_PROG_PARSE_OUTPUT,
    SAMPLE = WEFT_PROG_SAMPLE,
    RUN_BATCH = WEFT_PROG_RUN_BATCH,
    PLAN = WEFT_PROG_PLAN,
    SUPERVISORS = SERVE | RUN_BATCH,
    ASKED = SUPERVISORS | ROUTER, /* what requests are answered by, wherever they come from */
    FRONT = SERVE | ROUTER,
    TALK = RUN | CHAT,
    LOCAL = TALK | WEFT_PROG_PERPLEXITY | BENCH,
    ENGINE = SUPERVISORS | WORKER | LOCAL | PLAN,
    ACTORS = ROUTER | SCHEDULER | WORKER,
    TOOLS = LOCAL | PACK | BENCH_SERVE | INSPECT | TOKENIZE | TEMPLATE | GRAMMAR | PARSE_OUTPUT |
            SAMPLE | RUN_BATCH | PLAN,
    EVERY = SERVE | ACTORS | TOOLS,
    SECRET = SERVE | ROUTER | BENCH_SERVE,
    QUANTISERS = WEFT_PROG_PERPLEXITY | PACK,
};

#define ARG_F32 "X"
#define ARG_U32 "N"
#define ARG_I32 "N"
#define SETTING(f, k, flag, bits, least, most, text, shown, line)                                  \
    {.name = flag,                                                                                 \
     .kind = WEFTI_CONFIG_##k,                                                                     \
     .offset = offsetof(struct weft_config, f),                                                    \
     .given = offsetof(struct weft_config, given.f),                                               \
     .programs = bits,                                                                             \
     .min = least,                                                                                 \
     .max = most,                                                                                  \
     .value = text,                                                                                \
     .arg = shown,                                                                                 \
     .help = line},
#define KNOB(k, f, flag, number, least, most, api_least, api_most, line)                           \
    SETTING(f, k, flag, TALK, least, most, #number, ARG_##k, line)
/* No program knows it, so who looks for a setting passes over it. */
#define HEAD(title) {.head = title},
const struct wefti_config_setting wefti_config_settings[] = {WEFT_SETTINGS(SETTING, KNOB, HEAD)};
const size_t wefti_config_n_settings =
    sizeof wefti_config_settings / sizeof wefti_config_settings[0];

#define MODEL                                                                                      \
    { "MODEL", offsetof(struct weft_config, model) }

/* Commands in the order of `weft --help`; the actors have no name there. */
static const struct wefti_config_program programs[] = {
    {.bit = WEFT_PROG_SERVE,
     .name = "serve",
     .usage = "weft serve MODEL [options]",
     .about = "Serves a model over HTTP (OpenAI's API) and MessagePack-RPC.",
     .examples = {"weft serve models/fable-6m",
                  "weft serve model.gguf --port 9000 --api-key-file keys.txt",
                  "weft serve model.weft --workers 2 --served-model-name mine,gpt-4o"},
     .words = {MODEL}},
    {.bit = WEFT_PROG_CHAT,
     .name = "chat",
     .usage = "weft chat MODEL [options]",
     .about = "A chat in the terminal, without a server; in a pipe each line is a message.",
     .examples = {"weft chat models/fable-6m --temperature 0.5",
                  "weft chat model.gguf --system \"Answer in one sentence.\"",
                  "echo \"What is a loom?\" | weft chat model.gguf"},
     .words = {MODEL},
     .details =
         "Lines that begin with a slash are commands: /reset, /system TEXT, /save FILE, "
         "/help, /quit. Ctrl-C stops an answer; at the prompt it ends the chat. Temperature, "
         "top-p, top-k, min-p and the repetition penalty are those of the model's "
         "generation_config.json where no setting says otherwise."},
    {.bit = WEFT_PROG_RUN,
     .name = "run",
     .usage = "weft run MODEL -p TEXT [options]",
     .about = "One completion, without a server.",
     .examples = {"weft run models/fable-6m -p \"The old house stood\" --temperature 0.6 --seed 11",
                  "weft run model.gguf --chat -p \"What is a loom?\"",
                  "weft run model.gguf < prompt.txt"},
     .words = {MODEL},
     .details = "With --batch FILE it answers the requests of a file: see weft help run-batch."},
    {.bit = WEFT_PROG_RUN_BATCH,
     .name = "run-batch",
     .usage = "weft run MODEL --batch FILE [--output FILE] [options]",
     .about = "Answers the requests of a file, without a server.",
     .examples =
         {"weft run models/fable-6m --batch in.jsonl --output out.jsonl",
          "weft run model.gguf --batch - < in.jsonl > out.jsonl",
          "weft run models/fable-6m --batch in.jsonl --output out.jsonl --lora mine=adapter"},
     .words = {MODEL},
     .details =
         "The file is one of OpenAI's batches: a line for each request, {\"custom_id\": TEXT, "
         "\"method\": \"POST\", \"url\": \"/v1/chat/completions\", /v1/completions, /v1/responses, "
         "/v1/embeddings or /v1/messages, \"body\": {...}}. All of it is checked before anything "
         "is "
         "computed. Answers come as they are ready, a line each: {\"id\", \"custom_id\", "
         "\"response\": {\"status_code\", \"request_id\", \"body\"}, \"error\"}. The same command "
         "after it was stopped or killed goes on with the lines that have no answer in --output. "
         "The "
         "exit status is 0 if every line has an answer, be it an error. weft run-batch is another "
         "name of "
         "weft run where --batch is given."},
    {.bit = WEFT_PROG_PACK,
     .name = "pack",
     .usage = "weft pack MODEL OUT [--dtype TYPE] [options]",
     .about = "Writes a model as the engine wants it in memory: one file that starts at once.",
     .examples = {"weft pack models/fable-6m fable.weft --dtype q8"},
     .words = {MODEL, {"OUT", offsetof(struct weft_config, out)}}},
    {.bit = WEFT_PROG_BENCH,
     .name = "bench",
     .usage = "weft bench MODEL [--prompt LIST] [--gen N] [--batch LIST] [options]",
     .about = "Speed of prompt and generation, beside what the machine can do.",
     .examples = {"weft bench models/fable-6m",
                  "weft bench model.gguf --prompt 512,4096 --batch 1,8,32"},
     .words = {MODEL}},
    {.bit = WEFT_PROG_BENCH_SERVE,
     .name = "bench-serve",
     .usage = "weft bench-serve URL [--concurrency N] [--requests N] [options]",
     .about = "Loads a server of OpenAI's API with streaming clients: rates and waiting times.",
     .examples = {"weft bench-serve http://127.0.0.1:8080 --concurrency 32",
                  "weft bench-serve http://127.0.0.1:8080 --rate 5 --requests 300 --goodput "
                  "ttft:2000,itl:200",
                  "weft bench-serve http://127.0.0.1:8080 --turns 8 --svg turns.svg"},
     .words = {{"URL", offsetof(struct weft_config, model)}}},
    {.bit = WEFT_PROG_PERPLEXITY,
     .name = "perplexity",
     .usage = "weft perplexity MODEL FILE [options]",
     .about = "How well a model predicts a text.",
     .examples = {"weft perplexity models/fable-6m tests/data/valid.txt --dtype q8",
                  "weft perplexity MODEL FILE --kv-dtype int8 --kl-divergence"},
     .words = {MODEL, {"FILE", offsetof(struct weft_config, prompt)}}},
    {.bit = WEFT_PROG_INSPECT,
     .name = "inspect",
     .usage = "weft inspect MODEL [--tensors]",
     .about = "What is in a model file, without loading it.",
     .examples = {"weft inspect models/fable-6m --tensors"},
     .words = {MODEL},
     .details = "With --plan it tells what serving the model would need: see weft help plan."},
    {.bit = WEFT_PROG_PLAN,
     .name = "plan",
     .usage = "weft inspect --plan MODEL [options]",
     .about = "Will it fit, and how fast? Memory and speed of weft serve, without starting it.",
     .examples = {"weft inspect --plan models/fable-6m",
                  "weft inspect --plan model.gguf --max-model-len 32768 --kv-dtype int8",
                  "weft inspect --plan folder-with-config.json --dtype q8 --memory 64GiB "
                  "--bandwidth 200"},
     .words = {MODEL},
     .details =
         "Options are those of weft serve, and give the sums that it would come to with them. No "
         "weight is read: a folder with a config.json alone will do, whose tensors' shapes are "
         "then those that the configuration asks for. Speeds are bounds: of one stream by the "
         "bytes that a token reads (weights, of experts only those it takes, KV cache and "
         "states) and the memory's speed, of prompts by the products' peak; both are measured "
         "here in a second, or given. The exit status is 0 if it fits, 1 if not. weft plan is "
         "another name of weft inspect where --plan is given."},
    {.bit = WEFT_PROG_TOKENIZE,
     .name = "tokenize",
     .usage = "weft tokenize MODEL [--no-bos] [--no-parse-special] [--json] < TEXT",
     .about = "Text on standard input to token ids.",
     .examples = {"echo \"Once upon a time\" | weft tokenize models/fable-6m"},
     .words = {MODEL},
     .details = "With --json a JSON list of strings becomes a JSON list of lists of ids."},
    {.bit = WEFT_PROG_TEMPLATE,
     .name = "template",
     .usage = "weft template MODEL|FILE.jinja --cases FILE [--json]",
     .about = "Renders a chat template for the cases of a file.",
     .examples = {"weft template models/fable-6m --cases cases.json"},
     .words = {{"MODEL or FILE.jinja", offsetof(struct weft_config, model)}},
     .details =
         "The file: {\"now\": \"2025-03-14T15:09:26\", \"cases\": {NAME: {\"messages\": [...], "
         "\"add_generation_prompt\": true, ...}}}. A case holds the template's variables; \"now\", "
         "which "
         "may be left out, is what strftime_now writes. Printed are the texts, or with --json "
         "{NAME: "
         "{\"text\": ...} or {\"error\": ...}}."},
    {.bit = WEFT_PROG_GRAMMAR,
     .name = "grammar",
     .usage = "weft grammar (--schema FILE | --regex RE | --gbnf FILE | --lark FILE | --tags FILE) "
              "[--thinking none|open|maybe] [--tokenizer MODEL] --cases FILE [--json]",
     .about = "Judges texts by a grammar.",
     .examples = {"weft grammar --regex \"[0-9]+(\\.[0-9]+)?\" --cases texts.json"},
     .details = "The file (\"-\": standard input) is a JSON list of strings. A line for each says "
                "accepted, incomplete (a text of the grammar begins so) or rejected, and at which "
                "byte, from 1 on, no text of the grammar goes on so; with --json one list of the "
                "words alone. With "
                "--tokenizer a text is "
                "accepted only if, in the tokens of that model, each is allowed where it stands."},
    {.bit = WEFT_PROG_PARSE_OUTPUT,
     .name = "parse-output",
     .usage = "weft parse-output --format NAME|MODEL --cases FILE [--chunk N] [--json]",
     .about = "Finds thoughts, content and tool calls in a model's output.",
     .examples = {"weft parse-output --format hermes --cases outputs.json --json"},
     .details =
         "The file (\"-\": standard input): {\"tools\": [...], \"cases\": [{\"name\": NAME, "
         "\"output\": TEXT, ...}]}. tools are those of the request, in OpenAI's form. A case may "
         "have "
         "\"prompt_tail\", the end of the prompt, which may have opened or closed thoughts, and "
         "\"tool_choice\": \"none\". With --json: {NAME: {\"content\", \"reasoning_content\", "
         "\"tool_calls\": [{\"name\", \"arguments\", \"id\" if the output has one}]}}. The format "
         "of a MODEL is told by its chat template."},
    {.bit = WEFT_PROG_SAMPLE,
     .name = "sample",
     .usage = "weft sample --cases FILE [--json]",
     .about = "Applies samplers to given logits and prints the probabilities.",
     .examples = {"weft sample --cases sampling.json --json"},
     .details = "The file, name.json: {\"cases\": [{\"name\", \"vector\": NAME, \"variant\": "
                "\"llama.cpp\" or "
                "another, \"steps\": [[SAMPLER, {ARGUMENTS}], ...], \"expected\": NAME}], "
                "\"mirostat\": [...], "
                "\"contrastive\": [...]}; beside it name.safetensors with the vectors, "
                "\"logits.NAME\" in F32. "
                "docs/sampling.md lists the samplers and their arguments. With --json: {NAME: "
                "[probabilities], ..., \"mirostat\": [...], \"contrastive\": [...]}, where NAME is "
                "that of what "
                "is expected, or of the case."},
    {.bit = WEFT_PROG_ROUTER,
     .usage = "weft-router MODEL --scheduler-url URL... [options]",
     .about = "Takes requests; weft serve starts it.",
     .words = {MODEL}},
    {.bit = WEFT_PROG_SCHEDULER,
     .usage = "weft-scheduler --scheduler-url URL --worker-url URL [options]",
     .about = "Plans steps; weft serve starts it."},
    {.bit = WEFT_PROG_WORKER,
     .usage = "weft-worker MODEL --worker-url URL [options]",
     .about = "Computes steps; weft serve starts it.",
     .words = {MODEL}},
};

const struct wefti_config_alias wefti_config_aliases[] = {
    {WEFT_PROG_RUN, "-p", "--prompt", false},
    {WEFT_PROG_RUN, "-n", "--n-predict", false},
    {WEFT_PROG_RUN, "--max-tokens", "--n-predict", false},
    {WEFT_PROG_RUN_BATCH, "-i", "--batch", false},
    {WEFT_PROG_RUN_BATCH, "-o", "--output", false},
    {WEFT_PROG_CHAT, "-n", "--n-predict", false},
    {WEFT_PROG_CHAT, "--max-tokens", "--n-predict", false},
    {WEFT_PROG_BENCH, "--prompt", "--bench-prompt", false},
    {WEFT_PROG_BENCH, "--rounds", "--reps", false},
    {SERVE | WORKER, "--slot-save-path", "--session-dir", false},
    {SERVE | SCHEDULER, "--step-target", "--itl-target-ms", true},
    {0, NULL, NULL, false},
};

const char *wefti_config_former(const struct wefti_config_setting *s) {
    for (const struct wefti_config_alias *a = wefti_config_aliases; a->typed; a++) {
        if (a->is_former && a->programs & s->programs && !strcmp(a->full + 2, s->name))
            return a->typed + 2;
    }
    return NULL;
}

const struct wefti_config_program *wefti_config_program(enum weft_program bit) {
    const struct wefti_config_program *program = programs;
    while (program->bit != bit)
        program++;
    return program;
}

bool weft_config_computes(enum weft_program program) {
    return program & (ENGINE | PACK | SAMPLE);
}

const struct wefti_config_program *wefti_config_command(size_t idx) {
    return idx < sizeof programs / sizeof programs[0] && programs[idx].name ? &programs[idx] : NULL;
}

bool weft_config_command(const char *name, enum weft_program *program_out,
                         const char **nearest_out) {
    struct weft_nearest nearest;
    weft_nearest_init(&nearest, (struct weft_str){name, strlen(name)});
    *nearest_out = NULL;
    for (size_t i = 0; wefti_config_command(i); i++) {
        const struct wefti_config_program *program = wefti_config_command(i);
        if (!strcmp(program->name, name)) {
            *program_out = program->bit;
            return true;
        }
        unsigned cost = nearest.cost;
        weft_nearest_offer(&nearest, program->name);
        if (nearest.cost < cost) *nearest_out = program->name;
    }
    return false;
}

static bool is_name(const char *known, struct weft_str name) {
    return strlen(known) == name.len && !memcmp(known, name.data, name.len);
}

const struct wefti_config_setting *wefti_config_find(unsigned wanted, struct weft_str name) {
    for (size_t i = 0; i < wefti_config_n_settings; i++) {
        const struct wefti_config_setting *s = &wefti_config_settings[i];
        if (!(s->programs & wanted)) continue;
        const char *former = wefti_config_former(s);
        if (is_name(s->name, name) || (former && is_name(former, name))) return s;
    }
    return NULL;
}

void wefti_config_variable(const char *name, char name_out[WEFTI_CONFIG_NAME_BYTES]) {
    int n = snprintf(name_out, WEFTI_CONFIG_NAME_BYTES, "WEFT_%s", name);
    WEFT_ASSERT(n > 0 && n < WEFTI_CONFIG_NAME_BYTES);
    for (char *p = name_out; *p; p++)
        *p = *p == '-' ? '_' : (char)toupper((unsigned char)*p);
}

bool wefti_config_is_number(const struct wefti_config_setting *s) {
    return s->kind != WEFTI_CONFIG_TEXT && s->kind != WEFTI_CONFIG_TEXTS &&
           s->kind != WEFTI_CONFIG_LIST && s->kind != WEFTI_CONFIG_WORD;
}
