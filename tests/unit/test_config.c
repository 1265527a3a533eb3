/* Settings from three sources. The environment is emptied of WEFT_* before each case, and a config
 * file lies in a fresh temporary file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/limits.h"
#include "common/config.h"

enum { ARGS_MAX = 64, BORROWED_MAX = 4 * ARGS_MAX }; /* ARGS_MAX as in `weft serve` */

static struct weft_config config;
static struct weft_errmsg why;
static bool done;
static char config_path[64];
static char *borrowed[BORROWED_MAX]; /* freed after each case */
static uint32_t n_borrowed;

/* The linker turns calls of asprintf into this. */
#define NEVER UINT32_MAX
static uint32_t n_left = NEVER; /* calls to go until they are refused */

__attribute__((format(printf, 2, 3))) int __wrap_asprintf(char **text_out, const char *fmt, ...);

int __wrap_asprintf(char **text_out, const char *fmt, ...) {
    va_list args;
    if (n_left == 0) return -1;
    if (n_left != NEVER) n_left--;
    va_start(args, fmt);
    int n = vasprintf(text_out, fmt, args);
    va_end(args);
    return n;
}

static int clean_environment(void **state) {
    (void)state;
    for (char **var = environ; *var;) {
        char name[256];
        size_t len = strcspn(*var, "=");
        if (strncmp(*var, "WEFT_", 5) != 0 || len >= sizeof name) {
            var++;
            continue;
        }
        memcpy(name, *var, len);
        name[len] = '\0';
        if (unsetenv(name) != 0) return -1;
        var = environ;
    }
    why.text[0] = '\0';
    return unsetenv("COLUMNS");
}

static void remove_config(void) {
    if (config_path[0]) (void)unlink(config_path);
    config_path[0] = '\0';
}

static int clean_up(void **state) {
    (void)state;
    remove_config();
    while (n_borrowed > 0)
        free(borrowed[--n_borrowed]);
    return 0;
}

static void set_env(const char *name, const char *value) {
    assert_int_equal(setenv(name, value, 1), 0);
}

/* Writes the file and names it in the environment. */
static void write_config_bytes(const char *bytes, size_t n) {
    remove_config();
    strcpy(config_path, "/tmp/weft_test_config_XXXXXX");
    int fd = mkstemp(config_path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
    assert_int_equal(close(fd), 0);
    set_env("WEFT_CONFIG", config_path);
}

static void write_config(const char *text) {
    write_config_bytes(text, strlen(text));
}

static weft_err parse_args(enum weft_program program, char **args) {
    int argc = 0;
    while (args[argc])
        argc++;
    memset(&config, 0xee, sizeof config);
    return weft_config_parse(program, argc, args, &config, &done, &why);
}
#define PARSE(program, ...) parse_args(program, (char *[]){"weft", __VA_ARGS__, NULL})

#define ASSERT_PARSES(...)                                                                         \
    do {                                                                                           \
        if (PARSE(__VA_ARGS__)) fail_msg("refused: %s", why.text);                                 \
        assert_false(done);                                                                        \
    } while (0)

#define ASSERT_REFUSED(code, message, ...)                                                         \
    do {                                                                                           \
        assert_int_equal(PARSE(__VA_ARGS__), code);                                                \
        assert_string_equal(why.text, message);                                                    \
    } while (0)

/* ---------------------------------------------------------------------------------- sources --- */

static void defaults_are_what_help_tells(void **state) {
    (void)state;
    ASSERT_PARSES(WEFT_PROG_SERVE, "models/x");
    assert_string_equal(config.model, "models/x");
    assert_string_equal(config.host, "127.0.0.1");
    assert_int_equal(config.port, 8080);
    assert_int_equal(config.rpc_port, 8081);
    assert_false(config.no_rpc);
    assert_string_equal(config.served_model_name, "x");
    assert_null(config.api_key);
    assert_null(config.api_key_file);
    assert_string_equal(config.metrics_prefix, "weft_");
    assert_string_equal(config.expert_metrics, "auto");
    assert_int_equal(config.max_body_bytes, 32 << 20);
    assert_int_equal(config.max_num_seqs, 64);
    assert_int_equal(config.max_num_batched_tokens, 512);
    assert_int_equal(config.max_queue, 1024);
    assert_int_equal(config.itl_target_ms, WEFT_CONFIG_AUTO);
    assert_string_equal(config.scheduling_policy, "fcfs");
    assert_int_equal(config.max_queued_tokens, 0);
    assert_false(config.no_prefix_cache);
    assert_int_equal(config.queue_timeout_ms, 0);
    assert_int_equal(config.run_timeout_ms, 0);
    assert_string_equal(config.dtype, "auto");
    assert_string_equal(config.kv_dtype, "auto");
    assert_int_equal(config.kv_memory, 0);
    assert_int_equal(config.block_size, 16);
    assert_int_equal(config.max_model_len, 0);
    assert_int_equal(config.threads, 0);
    assert_int_equal(config.weights_fd, -1);
    assert_int_equal(config.status_fd, -1);
    assert_string_equal(config.log_format, "text");
    assert_string_equal(config.log_level, "info");
}

static void settings_that_a_program_does_not_know_stay_empty(void **state) {
    (void)state;
    ASSERT_PARSES(WEFT_PROG_SCHEDULER, "--scheduler-url=a", "--worker-url=b");
    assert_null(config.model);
    assert_null(config.host);
    assert_int_equal(config.port, 0);
    assert_int_equal(config.threads, 0);
    assert_int_equal(config.max_num_seqs, 64);
    assert_int_equal(config.weights_fd, -1);
    assert_string_equal(config.scheduler_url, "a");
    assert_string_equal(config.worker_url, "b");
}

static void flags_win_over_the_environment_and_that_over_the_file(void **state) {
    (void)state;
    write_config("port = 1\nrpc-port = 3\nmax-queue = 1\n");
    ASSERT_PARSES(WEFT_PROG_SERVE, "m");
    assert_int_equal(config.port, 1);
    assert_int_equal(config.rpc_port, 3);
    assert_int_equal(config.max_queue, 1);
    set_env("WEFT_RPC_PORT", "2");
    set_env("WEFT_MAX_QUEUE", "2");
    ASSERT_PARSES(WEFT_PROG_SERVE, "m", "--max-queue", "3");
    assert_int_equal(config.port, 1);
    assert_int_equal(config.rpc_port, 2);
    assert_int_equal(config.max_queue, 3);
    assert_int_equal(config.max_num_seqs, 64);
}

static void what_somebody_gave_is_told_from_defaults(void **state) {
    (void)state;
    write_config("top-k = 0\n");
    set_env("WEFT_MIN_P", "0");
    ASSERT_PARSES(WEFT_PROG_CHAT, "m", "--temperature=0");
    assert_true(config.given.temperature && config.given.min_p && config.given.top_k);
    assert_false(config.given.top_p || config.given.seed || config.given.system);
}

static void the_config_flag_wins_over_its_variable(void **state) {
    (void)state;
    write_config("port = 7\n");
    set_env("WEFT_CONFIG", "/nowhere/at/all");
    ASSERT_PARSES(WEFT_PROG_SERVE, "m", "--config", config_path);
    assert_int_equal(config.port, 7);
    char flag[80];
    (void)snprintf(flag, sizeof flag, "--config=%s", config_path);
    ASSERT_PARSES(WEFT_PROG_SERVE, flag, "m");
    assert_int_equal(config.port, 7);
}

static void the_last_of_two_equal_flags_wins(void **state) {
    (void)state;
    ASSERT_PARSES(WEFT_PROG_SERVE, "--port=1", "m", "--port", "2");
    assert_int_equal(config.port, 2);
}

/* ------------------------------------------------------------------------------------ flags --- */

static void a_value_stands_behind_an_equals_sign_or_a_space(void **state) {
    (void)state;
    ASSERT_PARSES(WEFT_PROG_SERVE, "--port=1234", "m", "--host", "0.0.0.0", "--api-key=a=b=");
    assert_int_equal(config.port, 1234);
    assert_string_equal(config.host, "0.0.0.0");
    assert_string_equal(config.api_key, "a=b=");
    assert_string_equal(config.model, "m");
    ASSERT_PARSES(WEFT_PROG_SERVE, "m", "--served-model-name=", "--chat-template", "--odd");
    assert_string_equal(config.served_model_name, "");
    assert_string_equal(config.chat_template, "--odd");
    ASSERT_REFUSED(WEFT_E_INVAL, "--port needs a value", WEFT_PROG_SERVE, "m", "--port");
    ASSERT_REFUSED(WEFT_E_INVAL, "--config needs a value", WEFT_PROG_SERVE, "m", "--config");
}

static void a_boolean_needs_no_value_but_takes_one_behind_an_equals_sign(void **state) {
    (void)state;
    ASSERT_PARSES(WEFT_PROG_SERVE, "--no-rpc", "m");
    assert_true(config.no_rpc);
    assert_string_equal(config.model, "m");
    ASSERT_PARSES(WEFT_PROG_SERVE, "--no-rpc=yes", "m");
    assert_true(config.no_rpc);
    set_env("WEFT_NO_RPC", "on");
    ASSERT_PARSES(WEFT_PROG_SERVE, "m");
    assert_true(config.no_rpc);
    ASSERT_PARSES(WEFT_PROG_SERVE, "--no-rpc=false", "m");
    assert_false(config.no_rpc);
    ASSERT_REFUSED(WEFT_E_INVAL, "--no-rpc: \"maybe\" is neither true nor false", WEFT_PROG_SERVE,
                   "m", "--no-rpc=maybe");
}

static void sizes_take_units(void **state) {
    (void)state;
    ASSERT_PARSES(WEFT_PROG_SERVE, "m", "--kv-memory=1.5GiB", "--max-body", "64K",
                  "--max-logprob-bytes=10MB");
    assert_true(config.kv_memory == 1610612736u);
    assert_int_equal(config.max_body_bytes, 65536);
    assert_int_equal(config.max_logprob_bytes, 10000000);
    ASSERT_PARSES(WEFT_PROG_WORKER, "m", "--kv-memory=4096");
    assert_int_equal(config.kv_memory, 4096);
}

static void what_is_out_of_range_is_refused_by_the_name_of_its_flag(void **state) {
    (void)state;
    ASSERT_REFUSED(WEFT_E_INVAL, "--port: \"65536\" is not a number from 0 to 65535",
                   WEFT_PROG_SERVE, "m", "--port=65536");
    ASSERT_REFUSED(WEFT_E_INVAL, "--port: \"-1\" is not a number from 0 to 65535", WEFT_PROG_SERVE,
                   "m", "--port", "-1");
    ASSERT_REFUSED(WEFT_E_INVAL, "--port: \"http\" is not a number from 0 to 65535",
                   WEFT_PROG_SERVE, "m", "--port", "http");
    ASSERT_REFUSED(WEFT_E_INVAL, "--max-num-seqs: \"0\" is not a number from 1 to 4096",
                   WEFT_PROG_SERVE, "m", "--max-num-seqs=0");
    ASSERT_REFUSED(WEFT_E_INVAL, "--temperature: \"nan\" is not a number from 0 to 1000000",
                   WEFT_PROG_RUN, "m", "--temperature=nan");
    ASSERT_REFUSED(WEFT_E_INVAL, "--top-p: \"1.01\" is not a number from 1e-30 to 1", WEFT_PROG_RUN,
                   "m", "--top-p=1.01");
    ASSERT_REFUSED(WEFT_E_INVAL, "--seed: \"18446744073709551616\" is not a whole number",
                   WEFT_PROG_RUN, "m", "--seed", "18446744073709551616");
    ASSERT_REFUSED(WEFT_E_INVAL, "--weights-fd: \"1.5\" is not a number from -1 to 1000000",
                   WEFT_PROG_WORKER, "m", "--weights-fd=1.5");
    ASSERT_REFUSED(WEFT_E_INVAL, "--weights-fd: \"-2\" is not a number from -1 to 1000000",
                   WEFT_PROG_WORKER, "m", "--weights-fd=-2");
    assert_int_equal(PARSE(WEFT_PROG_SERVE, "m", "--max-body=1023"), WEFT_E_INVAL);
    assert_non_null(strstr(why.text, "--max-body: \"1023\" is not a size"));
    assert_int_equal(PARSE(WEFT_PROG_SERVE, "m", "--max-body=1TiB"), WEFT_E_INVAL);
    assert_int_equal(PARSE(WEFT_PROG_SERVE, "m", "--kv-memory=lots"), WEFT_E_INVAL);
    set_env("WEFT_MAX_NUM_SEQS", "");
    ASSERT_REFUSED(WEFT_E_INVAL, "WEFT_MAX_NUM_SEQS: \"\" is not a number from 1 to 4096",
                   WEFT_PROG_SERVE, "m");
}

static void both_ends_of_a_range_are_in_it(void **state) {
    (void)state;
    ASSERT_PARSES(WEFT_PROG_SERVE, "m", "--port=0", "--max-num-seqs=1", "--block-size=16");
    assert_int_equal(config.port, 0);
    ASSERT_PARSES(WEFT_PROG_SERVE, "m", "--port=65535", "--max-num-seqs=4096", "--block-size=256",
                  "--max-body=256MiB");
    assert_int_equal(config.port, 65535);
    assert_int_equal(config.max_num_seqs, WEFT_SEQS_MAX);
    assert_int_equal(config.max_body_bytes, WEFT_BODY_BYTES_MAX);
}

static void unknown_flags_are_refused(void **state) {
    (void)state;
    ASSERT_REFUSED(WEFT_E_INVAL, "unknown flag --nope (try --help)", WEFT_PROG_SERVE, "m",
                   "--nope=1");
    ASSERT_REFUSED(WEFT_E_INVAL, "unknown flag -x (try --help)", WEFT_PROG_SERVE, "m", "-x");
    ASSERT_REFUSED(WEFT_E_INVAL, "unknown flag -- (try --help)", WEFT_PROG_SERVE, "m", "--");
    ASSERT_REFUSED(WEFT_E_INVAL, "unknown flag --ctx-size (here it is --max-model-len)",
                   WEFT_PROG_SERVE, "m", "--ctx-size", "512");
    ASSERT_REFUSED(WEFT_E_INVAL, "unknown flag -ngl (computing is on CPUs alone)", WEFT_PROG_SERVE,
                   "m", "-ngl", "99");
    ASSERT_REFUSED(WEFT_E_INVAL, "unknown flag --alias (try --help)", WEFT_PROG_RUN, "m",
                   "--alias=x");
    ASSERT_REFUSED(WEFT_E_INVAL, "unknown flag --por (did you mean --port?)", WEFT_PROG_SERVE, "m",
                   "--por", "1");
    ASSERT_REFUSED(WEFT_E_INVAL, "unknown flag --portx (did you mean --port?)", WEFT_PROG_SERVE,
                   "m", "--portx=1");
    /* one program's flag is not another's */
    ASSERT_REFUSED(WEFT_E_INVAL, "unknown flag --port (try --help)", WEFT_PROG_WORKER, "m",
                   "--port=1");
    ASSERT_REFUSED(WEFT_E_INVAL, "unknown flag -p (try --help)", WEFT_PROG_SERVE, "m", "-p", "x");
    assert_int_equal(config.status_fd, -1); /* who is told of it looks at this */
    assert_int_equal(config.weights_fd, -1);
}

static void a_misspelt_flag_has_a_neighbour(void **state) {
    (void)state;
    static const char *const pairs[][2] = {
        {"--max_num_seqs=4", "--max_num_seqs (did you mean --max-num-seqs?)"},
        {"--MAX-QUEUE", "--MAX-QUEUE (did you mean --max-queue?)"},
        {"--served-modle-name", "--served-modle-name (did you mean --served-model-name?)"},
        {"--api-key-fil", "--api-key-fil (did you mean --api-key-file?)"},
        {"--metrics", "--metrics (did you mean --metrics-prefix?)"},
        {"--hlep", "--hlep (did you mean --help?)"},
        {"--n-gpu-layers", "--n-gpu-layers (computing is on CPUs alone)"},
        {"--temperature", "--temperature (try --help)"},
        {"-port", "-port (did you mean --port?)"},
    };
    char message[128], flag[2000];
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        (void)snprintf(flag, sizeof flag, "%s", pairs[i][0]);
        (void)snprintf(message, sizeof message, "unknown flag %s", pairs[i][1]);
        ASSERT_REFUSED(WEFT_E_INVAL, message, WEFT_PROG_SERVE, "m", flag);
    }
    (void)snprintf(flag, sizeof flag, "--%01900d", 7); /* nobody is near it, and it is cut */
    assert_int_equal(PARSE(WEFT_PROG_SERVE, "m", flag), WEFT_E_INVAL);
}

static void a_word_is_one_of_those_that_help_lists(void **state) {
    (void)state;
    ASSERT_REFUSED(WEFT_E_INVAL, "--dtype is auto, f32, bf16, f16, q8 or q4, not \"int8\"",
                   WEFT_PROG_SERVE, "m", "--dtype=int8");
    ASSERT_REFUSED(WEFT_E_INVAL, "--kv-dtype is auto, f32, bf16, f16 or int8, not \"f3\"",
                   WEFT_PROG_RUN, "m", "--kv-dtype=f3");
    ASSERT_REFUSED(WEFT_E_INVAL, "--log-format is text or json, not \"\"", WEFT_PROG_SERVE, "m",
                   "--log-format=");
    ASSERT_REFUSED(WEFT_E_INVAL, "--log-format is text or json, not \"text|json\"", WEFT_PROG_SERVE,
                   "m", "--log-format=text|json");
    set_env("WEFT_ACTIVATIONS", "int3");
    ASSERT_REFUSED(WEFT_E_INVAL, "WEFT_ACTIVATIONS is auto, f32, bf16 or int8, not \"int3\"",
                   WEFT_PROG_SERVE, "m");
}

static void what_is_required_is_named(void **state) {
    (void)state;
    ASSERT_REFUSED(WEFT_E_INVAL,
                   "no OUT given; usage: weft pack MODEL OUT [--dtype TYPE] [options]",
                   WEFT_PROG_PACK, "m");
    ASSERT_REFUSED(WEFT_E_INVAL, "no FILE given; usage: weft perplexity MODEL FILE [options]",
                   WEFT_PROG_PERPLEXITY, "m");
    ASSERT_REFUSED(WEFT_E_INVAL,
                   "no --cases given; usage: weft template MODEL|FILE.jinja --cases FILE [--json]",
                   WEFT_PROG_TEMPLATE, "m");
    ASSERT_REFUSED(WEFT_E_INVAL,
                   "no --format given; usage: weft parse-output --format NAME|MODEL --cases FILE "
                   "[--chunk N] [--json]",
                   WEFT_PROG_PARSE_OUTPUT, "--cases", "f");
    ASSERT_PARSES(WEFT_PROG_TOKENIZE, "m", "--no-bos", "--json");
    assert_true(config.no_bos && config.json && !config.no_parse_special);
}

static void a_model_is_called_by_its_folder_or_file(void **state) {
    (void)state;
    static const char *const pairs[][2] = {
        {"models/fable-6m", "fable-6m"},
        {"/models/fable-6m//", "fable-6m"},
        {"fable-6m", "fable-6m"},
        {"a/b.c-7B-Q4_K_M.gguf", "b.c-7B-Q4_K_M"},
        {"big-00001-of-00003.gguf", "big"},
        {"big-0001-of-00003.gguf", "big-0001-of-00003"},
        {"fable.weft", "fable"},
        {".gguf", ".gguf"},
        {"a/..b", "..b"},
        {"/", "/"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        ASSERT_PARSES(WEFT_PROG_SERVE, (char *)(uintptr_t)pairs[i][0]);
        assert_string_equal(config.served_model_name, pairs[i][1]);
    }
    char here[4096];
    assert_non_null(getcwd(here, sizeof here));
    const char *slash = strrchr(here, '/');
    ASSERT_PARSES(WEFT_PROG_SERVE, "./");
    assert_string_equal(config.served_model_name, slash + 1);
    ASSERT_PARSES(WEFT_PROG_SERVE, "a/b", "--served-model-name=mine,yours");
    assert_string_equal(config.served_model_name, "mine,yours");
    ASSERT_PARSES(WEFT_PROG_RUN, "a/b");
    assert_null(config.served_model_name);
}

static void types_may_have_their_names_in_pytorch(void **state) {
    (void)state;
    ASSERT_PARSES(WEFT_PROG_SERVE, "m", "--dtype", "bfloat16", "--kv-dtype=half");
    assert_string_equal(config.dtype, "bf16");
    assert_string_equal(config.kv_dtype, "f16");
    ASSERT_REFUSED(WEFT_E_INVAL, "--activations is auto, f32, bf16 or int8, not \"half\"",
                   WEFT_PROG_SERVE, "m", "--activations=half");
}

static void arguments_are_as_many_as_the_program_takes(void **state) {
    (void)state;
    ASSERT_REFUSED(WEFT_E_INVAL, "unexpected argument \"n\"", WEFT_PROG_SERVE, "m", "n");
    ASSERT_REFUSED(WEFT_E_INVAL, "unexpected argument \"false\"", WEFT_PROG_SERVE, "m", "--no-rpc",
                   "false");
    ASSERT_REFUSED(WEFT_E_INVAL, "unexpected argument \"m\"", WEFT_PROG_SCHEDULER, "m");
    ASSERT_REFUSED(WEFT_E_INVAL, "unexpected argument \"once\" (a prompt goes behind --prompt)",
                   WEFT_PROG_RUN, "m", "once");
    ASSERT_PARSES(WEFT_PROG_PERPLEXITY, "m", "-"); /* standard input */
    assert_string_equal(config.model, "m");
    assert_string_equal(config.prompt, "-");
    ASSERT_REFUSED(WEFT_E_INVAL, "unexpected argument \"c\"", WEFT_PROG_PERPLEXITY, "a", "b", "c");
}

static void a_missing_model_is_told_with_the_usage(void **state) {
    (void)state;
    ASSERT_REFUSED(WEFT_E_INVAL, "no MODEL given; usage: weft serve MODEL [options]",
                   WEFT_PROG_SERVE, "--port=1");
    ASSERT_REFUSED(WEFT_E_INVAL,
                   "no MODEL given; usage: weft-worker MODEL --worker-url URL [options]",
                   WEFT_PROG_WORKER, "");
    assert_int_equal(parse_args(WEFT_PROG_RUN, (char *[]){"weft", NULL}), WEFT_E_INVAL);
}

static void settings_that_exclude_each_other_are_refused(void **state) {
    (void)state;
    ASSERT_REFUSED(WEFT_E_INVAL, "--log-format is text or json, not \"xml\"", WEFT_PROG_SCHEDULER,
                   "--log-format=xml");
    ASSERT_REFUSED(WEFT_E_INVAL, "--log-level is debug, info, warn or error, not \"loud\"",
                   WEFT_PROG_ROUTER, "m", "--log-level=loud");
    ASSERT_REFUSED(WEFT_E_INVAL, "--block-size must be a multiple of 16, got 24", WEFT_PROG_WORKER,
                   "m", "--block-size=24");
    ASSERT_REFUSED(WEFT_E_INVAL, "--workers: \"0\" is neither auto nor a number from 1 to 32",
                   WEFT_PROG_SERVE, "m", "--workers=0");
    ASSERT_REFUSED(WEFT_E_INVAL, "--workers: \"33\" is neither auto nor a number from 1 to 32",
                   WEFT_PROG_SERVE, "m", "--workers=33");
    ASSERT_REFUSED(WEFT_E_INVAL, "--workers: \"two\" is neither auto nor a number from 1 to 32",
                   WEFT_PROG_SERVE, "m", "--workers=two");
    ASSERT_REFUSED(WEFT_E_INVAL, "--tp divides a model among 2, 4 or 8 workers, not 3",
                   WEFT_PROG_SERVE, "m", "--tp=3");
    ASSERT_REFUSED(WEFT_E_INVAL,
                   "--layout tp divides a model among 2, 4 or 8 workers, not 3; with --tp N groups "
                   "of N workers have a model each",
                   WEFT_PROG_SERVE, "m", "--layout=tp", "--workers=3");
    ASSERT_REFUSED(WEFT_E_INVAL, "6 workers are no groups of 4, as --tp asks", WEFT_PROG_SERVE, "m",
                   "--workers=6", "--tp=4");
    ASSERT_REFUSED(WEFT_E_INVAL, "1 worker is no groups of 2, as --tp asks", WEFT_PROG_SERVE, "m",
                   "--workers=1", "--tp=2");
    ASSERT_REFUSED(WEFT_E_INVAL,
                   "--cpus has 3 lists, one for each worker: no groups of 2, as --tp asks",
                   WEFT_PROG_SERVE, "m", "--cpus=0/1/2-3", "--tp=2");
    ASSERT_REFUSED(WEFT_E_INVAL,
                   "--layout tp divides a model among 2, 4 or 8 workers, not 3; with --tp N groups "
                   "of N workers have a model each",
                   WEFT_PROG_SERVE, "m", "--cpus=0/1/2", "--layout=tp");
    ASSERT_REFUSED(WEFT_E_INVAL, "--tp 2 divides a model, which --layout replica does not",
                   WEFT_PROG_SERVE, "m", "--layout=replica", "--tp=2");
    ASSERT_REFUSED(WEFT_E_INVAL, "--expert-metrics is auto, on or off, not \"yes\"",
                   WEFT_PROG_WORKER, "m", "--expert-metrics=yes");
    ASSERT_REFUSED(
        WEFT_E_INVAL,
        "--speculative-model is for workers that have a model each, not for --layout tp; "
        "--speculative-ngram is for both",
        WEFT_PROG_SERVE, "m", "--layout=tp", "--speculative-model=d");
    ASSERT_REFUSED(
        WEFT_E_INVAL,
        "--speculative-model is for workers that have a model each, not for --layout tp; "
        "--speculative-ngram is for both",
        WEFT_PROG_SERVE, "m", "--tp=2", "--speculative-model=d");
    ASSERT_REFUSED(WEFT_E_INVAL,
                   "--speculative-mtp is for workers that have a model each, not for --layout tp; "
                   "--speculative-ngram is for both",
                   WEFT_PROG_SERVE, "m", "--tp=2", "--speculative-mtp");
    ASSERT_REFUSED(WEFT_E_INVAL,
                   "--speculative-model and --speculative-mtp do the same by different means: one "
                   "of them is enough",
                   WEFT_PROG_SERVE, "m", "--speculative-mtp", "--speculative-model=d");
    ASSERT_REFUSED(WEFT_E_INVAL, "--speculative-ngram looks for 2 to 8 tokens, not 1; 0 is off",
                   WEFT_PROG_SERVE, "m", "--speculative-ngram=1");
    ASSERT_PARSES(WEFT_PROG_SERVE, "m", "--layout=tp", "--workers=2", "--speculative-ngram=3",
                  "--num-speculative-tokens=4");
    ASSERT_REFUSED(WEFT_E_INVAL, "--layout is auto, replica or tp, not \"foo\"", WEFT_PROG_SERVE,
                   "m", "--layout=foo");
    ASSERT_REFUSED(WEFT_E_INVAL, "--link is abstract, ipc, tcp or tls, not \"pigeon\"",
                   WEFT_PROG_SERVE, "m", "--link=pigeon");
    ASSERT_PARSES(WEFT_PROG_SERVE, "m", "--workers=auto");
    assert_int_equal(config.n_workers, WEFT_CONFIG_AUTO);
    ASSERT_PARSES(WEFT_PROG_SERVE, "m", "--workers=2", "--layout=replica");
    assert_int_equal(config.n_workers, 2);
    ASSERT_PARSES(WEFT_PROG_SERVE, "m", "--workers=1", "--log-format=json", "--log-level=debug");
}

static void run_has_short_names_for_prompt_and_length(void **state) {
    (void)state;
    ASSERT_PARSES(WEFT_PROG_RUN, "m", "-p", "--help me", "-n", "7", "--temperature", ".5",
                  "--seed=18446744073709551615");
    assert_string_equal(config.prompt, "--help me");
    assert_int_equal(config.n_predict, 7);
    assert_true(config.temperature == 0.5);
    assert_true(config.seed == UINT64_MAX);
    assert_true(config.repetition_penalty == 1 && config.presence_penalty == 0);
    ASSERT_PARSES(WEFT_PROG_RUN, "m", "--presence-penalty=-1.5", "--min-tokens=3");
    assert_true(config.presence_penalty == -1.5);
    assert_int_equal(config.min_tokens, 3);
    ASSERT_PARSES(WEFT_PROG_RUN, "m", "--prompt-ids", "1,2,3");
    assert_null(config.prompt);
    assert_string_equal(config.prompt_ids, "1,2,3");
    assert_int_equal(config.n_predict, 64);
    ASSERT_REFUSED(WEFT_E_INVAL, "--n-predict: \"0\" is not a number from 1 to 4194304",
                   WEFT_PROG_RUN, "m", "-n", "0");
}

static void bench_takes_lists_of_prompts_and_batches(void **state) {
    (void)state;
    ASSERT_PARSES(WEFT_PROG_BENCH, "m", "--prompt", "100,7", "--gen=5", "--batch=1,2", "--json",
                  "--context", "64", "--reps=3");
    assert_string_equal(config.bench_prompt, "100,7");
    assert_string_equal(config.bench_batch, "1,2");
    assert_int_equal(config.bench_gen, 5);
    assert_int_equal(config.bench_context, 64);
    assert_int_equal(config.bench_reps, 3);
    assert_true(config.json);
    assert_null(config.prompt);
    ASSERT_PARSES(WEFT_PROG_BENCH, "--prompt=200", "m");
    assert_string_equal(config.bench_prompt, "200");
    ASSERT_PARSES(WEFT_PROG_BENCH, "m");
    assert_string_equal(config.bench_prompt, "512");
    assert_string_equal(config.bench_batch, "1,4,16");
    assert_int_equal(config.bench_gen, 128);
    assert_int_equal(config.bench_context, 32);
    assert_int_equal(config.bench_reps, 5);
    /* longer than any buffer on the way */
    char flag[2000];
    (void)snprintf(flag, sizeof flag, "--prompt=%01900d", 7);
    ASSERT_PARSES(WEFT_PROG_BENCH, "m", flag);
    assert_string_equal(config.bench_prompt, flag + strlen("--prompt="));
    (void)snprintf(flag, sizeof flag, "--gen=%01900d", 7);
    ASSERT_PARSES(WEFT_PROG_BENCH, "m", flag);
    assert_int_equal(config.bench_gen, 7);
    ASSERT_REFUSED(WEFT_E_INVAL, "--context: \"0\" is not a number from 1 to 4194304",
                   WEFT_PROG_BENCH, "m", "--context=0");
}

static void rounds_are_reps(void **state) {
    (void)state;
    ASSERT_PARSES(WEFT_PROG_BENCH, "m", "--rounds", "2");
    assert_int_equal(config.bench_reps, 2);
    ASSERT_PARSES(WEFT_PROG_BENCH, "m", "--rounds=4");
    assert_int_equal(config.bench_reps, 4);
    ASSERT_REFUSED(WEFT_E_INVAL, "--reps: \"101\" is not a number from 1 to 100", WEFT_PROG_BENCH,
                   "m", "--rounds=101");
    ASSERT_REFUSED(WEFT_E_INVAL, "unknown flag --roundsx (did you mean --rounds?)", WEFT_PROG_BENCH,
                   "m", "--roundsx=1");
    ASSERT_REFUSED(WEFT_E_INVAL, "unknown flag --rounds (try --help)", WEFT_PROG_RUN, "m",
                   "--rounds=1");
}

/* Runs the parser with standard output in a file; returns the start of what it printed. */
static const char *printed_by(enum weft_program program, char *flag) {
    static char text[16384];
    FILE *file = tmpfile();
    assert_non_null(file);
    (void)fflush(stdout);
    int saved = dup(STDOUT_FILENO);
    assert_true(saved >= 0 && dup2(fileno(file), STDOUT_FILENO) >= 0);
    weft_err err = PARSE(program, "m", flag);
    (void)fflush(stdout);
    assert_true(dup2(saved, STDOUT_FILENO) >= 0);
    (void)close(saved);
    assert_int_equal(err, WEFT_OK);
    assert_true(done);
    rewind(file);
    size_t n = fread(text, 1, sizeof text - 1, file);
    text[n] = '\0';
    (void)fclose(file);
    return text;
}

static void help_lists_the_programs_own_flags_with_their_defaults(void **state) {
    (void)state;
    const char *text = printed_by(WEFT_PROG_SERVE, "--help");
    assert_ptr_equal(strstr(text, "usage: weft serve MODEL [options]\n"), text);
    assert_non_null(strstr(text, "\n  --max-num-seqs N "));
    assert_non_null(strstr(text, "sequences that a worker computes at once (default"));
    assert_non_null(strstr(text, "\n  --no-rpc "));
    assert_non_null(strstr(text, "\n  --threads N "));
    assert_non_null(strstr(text, "\n  --config FILE "));
    assert_non_null(strstr(text, "WEFT_MAX_NUM_SEQS"));
    assert_null(strstr(text, "--n-predict"));
    assert_null(strstr(text, "--worker-url"));
    assert_null(strstr(text, "(null)"));
    text = printed_by(WEFT_PROG_SCHEDULER, "-h");
    assert_ptr_equal(strstr(text, "usage: weft-scheduler "), text);
    assert_null(strstr(text, "--port"));
}

static uint32_t widest_line(const char *text) {
    uint32_t widest = 0;
    for (; *text; text += text[strcspn(text, "\n")] != '\0') {
        size_t len = strcspn(text, "\n");
        if (len > widest) widest = (uint32_t)len;
        text += len;
    }
    return widest;
}

static void help_is_as_wide_as_the_terminal_within_limits(void **state) {
    (void)state;
    assert_true(widest_line(printed_by(WEFT_PROG_SERVE, "--help")) <= 80);
    set_env("COLUMNS", "70");
    assert_in_range(widest_line(printed_by(WEFT_PROG_SERVE, "--help")), 60, 70);
    set_env("COLUMNS", "1000");
    assert_in_range(widest_line(printed_by(WEFT_PROG_SERVE, "--help")), 90, 100);
    set_env("COLUMNS", "wide");
    assert_true(widest_line(printed_by(WEFT_PROG_SERVE, "--help")) <= 80);
    set_env("COLUMNS", "44"); /* what is said of a flag stands below it */
    assert_non_null(
        strstr(printed_by(WEFT_PROG_RUN, "--help"), "\n  -n, --max-tokens, --n-predict N\n      "));
    assert_int_equal(unsetenv("COLUMNS"), 0);
}

static void help_shows_examples_and_then_settings_by_groups(void **state) {
    (void)state;
    const char *text = printed_by(WEFT_PROG_SERVE, "--help");
    static const char *const parts[] = {"\n\nExamples:\n  weft serve models/fable-6m\n",
                                        "\n\nServing:\n  --host ADDR ",
                                        "\n\nAPI:\n  --api-key KEY ",
                                        "\n\nScheduling:\n  --max-num-seqs N ",
                                        "\n\nModel and memory:\n",
                                        "\n  --dtype auto|f32|bf16|f16|q8|q4\n",
                                        "\n\nLinks between processes:\n  --link ",
                                        "\n\nLogs and metrics:\n"};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        const char *at = strstr(text, parts[i]);
        if (!at) {
            fail_msg("not there, or before the part above it: %s", parts[i]);
            return; /* the linter's analyzer does not know that it never gets here */
        }
        text = at + 1;
    }
    assert_null(strstr(text, "\n\nSampling:\n")); /* a group without settings has no title */
    text = printed_by(WEFT_PROG_RUN, "--help");
    assert_non_null(strstr(text, "\n\nSampling:\n  --temperature X "));
    assert_non_null(strstr(text, "\n  -p, --prompt TEXT "));
    assert_null(strstr(text, "\n\nServing:\n"));
}

static void man_pages_are_made_of_the_same_settings(void **state) {
    (void)state;
    char *text = NULL;
    size_t n = 0;
    FILE *file = open_memstream(&text, &n);
    assert_non_null(file);
    weft_config_man(WEFT_PROG_SERVE, file);
    assert_int_equal(fclose(file), 0);
    assert_ptr_equal(strstr(text, ".TH weft\\-serve 1 "), text);
    assert_non_null(strstr(text, "\n.SS Scheduling\n.TP\n.B \\-\\-max\\-num\\-seqs N\n"));
    assert_non_null(strstr(text, "\n.SH EXAMPLES\n"));
    assert_null(strstr(text, "(null)"));
    free(text);
}

static void a_command_is_known_or_has_a_neighbour(void **state) {
    (void)state;
    enum weft_program program = 0;
    const char *nearest = NULL;
    assert_true(weft_config_command("bench-serve", &program, &nearest));
    assert_int_equal(program, WEFT_PROG_BENCH_SERVE);
    assert_false(weft_config_command("sevre", &program, &nearest));
    assert_string_equal(nearest, "serve");
    assert_false(weft_config_command("router", &program, &nearest));
    assert_null(nearest);
    assert_false(weft_config_command("", &program, &nearest));
    assert_null(nearest);
}

static void version_is_printed_by_every_program(void **state) {
    (void)state;
    assert_string_equal(printed_by(WEFT_PROG_ROUTER, "--version"), "weft " WEFT_VERSION "\n");
}

/* ------------------------------------------------------------------------------ environment --- */

static void a_descriptor_never_comes_from_the_environment_or_a_file(void **state) {
    (void)state;
    set_env("WEFT_STATUS_FD", "3");
    set_env("WEFT_WEIGHTS_FD", "4");
    ASSERT_PARSES(WEFT_PROG_WORKER, "m");
    assert_int_equal(config.status_fd, -1);
    assert_int_equal(config.weights_fd, -1);
    ASSERT_PARSES(WEFT_PROG_WORKER, "m", "--status-fd=3", "--weights-fd=4");
    assert_int_equal(config.status_fd, 3);
    assert_int_equal(config.weights_fd, 4);
    write_config("weights-fd = 4\n");
    assert_int_equal(PARSE(WEFT_PROG_WORKER, "m"), WEFT_E_INVAL);
    assert_non_null(strstr(why.text, ":1: unknown setting \"weights-fd\""));
}

static void variables_of_other_programs_are_not_looked_at(void **state) {
    (void)state;
    set_env("WEFT_PORT", "not a number");
    set_env("WEFT_NO_SUCH_SETTING", "1");
    ASSERT_PARSES(WEFT_PROG_WORKER, "m");
    ASSERT_REFUSED(WEFT_E_INVAL, "WEFT_PORT: \"not a number\" is not a number from 0 to 65535",
                   WEFT_PROG_ROUTER, "m");
}

static void what_kubernetes_says_of_a_service_is_no_setting(void **state) {
    (void)state;
    set_env("WEFT_PORT", "tcp://10.0.0.1:8080");
    set_env("WEFT_RPC_PORT", "udp://10.0.0.1:8081"); /* of a Service called weft-rpc */
    ASSERT_PARSES(WEFT_PROG_SERVE, "m");
    assert_int_equal(config.port, 8080);
    assert_int_equal(config.rpc_port, 8081);
    set_env("WEFT_PORT", "http://10.0.0.1:8080");
    assert_int_equal(PARSE(WEFT_PROG_SERVE, "m"), WEFT_E_INVAL);
}

/* What the check of the environment writes to standard error. */
static const char *warnings(void) {
    static char text[16384];
    FILE *file = tmpfile();
    assert_non_null(file);
    int saved = dup(STDERR_FILENO);
    assert_true(saved >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    weft_config_check_environment();
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    (void)close(saved);
    rewind(file);
    size_t n = fread(text, 1, sizeof text - 1, file);
    text[n] = '\0';
    (void)fclose(file);
    return text;
}

static void a_variable_that_nobody_reads_is_told(void **state) {
    (void)state;
    static const char *const read_by_somebody[] = {"WEFT_MAX_NUM_SEQS",
                                                   "WEFT_PROMPT",
                                                   "WEFT_CONFIG",
                                                   "WEFT_ISA",
                                                   "WEFT_SEED",
                                                   "WEFT_BIN_DIR",
                                                   "WEFT_OFFLINE",
                                                   "WEFT_TEST_LOG",
                                                   "WEFT_SERVICE_HOST",
                                                   "WEFT_SERVICE_PORT",
                                                   "WEFT_SERVICE_PORT_HTTP_METRICS",
                                                   "WEFT_PORT_8080_TCP",
                                                   "WEFT_PORT_8080_TCP_PROTO",
                                                   "WEFT_PORT_8080_TCP_PORT",
                                                   "WEFT_PORT_8080_TCP_ADDR",
                                                   "WEFT_CANARY_SERVICE_HOST",
                                                   "WEFT_CANARY_PORT_53_UDP",
                                                   "WEFTING",
                                                   "WEFT_"};
    for (size_t i = 0; i < sizeof read_by_somebody / sizeof read_by_somebody[0]; i++)
        set_env(read_by_somebody[i], "1");
    set_env("WEFT_CANARY_PORT", "tcp://10.0.0.1:80");
    assert_string_equal(warnings(), "");
    set_env("WEFT_API_KEYS", "hunter2");
    set_env("WEFT_PORT_8080", "1");
    set_env("WEFT_NO_SUCH_SETTING", "1");
    const char *text = warnings();
    assert_non_null(
        strstr(text, "nobody reads the variable WEFT_API_KEYS; did you mean WEFT_API_KEY?\n"));
    assert_non_null(strstr(text, "nobody reads the variable WEFT_PORT_8080\n"));
    assert_non_null(strstr(text, "nobody reads the variable WEFT_NO_SUCH_SETTING\n"));
    assert_null(strstr(text, "hunter2"));
}

/* ------------------------------------------------------------------------------------- file --- */

static void a_file_has_comments_blank_lines_and_either_kind_of_dash(void **state) {
    (void)state;
    write_config("# the front\n\n  host=::1  \r\n\tport =   9\n   # more\nmax_num_seqs = 5\n"
                 "served-model-name = a model = b#not a comment\nno_rpc = yes\nkv-memory = 1GiB");
    ASSERT_PARSES(WEFT_PROG_SERVE, "m");
    assert_string_equal(config.host, "::1");
    assert_int_equal(config.port, 9);
    assert_int_equal(config.max_num_seqs, 5);
    assert_string_equal(config.served_model_name, "a model = b#not a comment");
    assert_true(config.no_rpc);
    assert_int_equal(config.kv_memory, 1 << 30);
}

static void values_may_stand_in_quotes_and_before_comments(void **state) {
    (void)state;
    write_config("host = \"::1\" # here\nport = 9 # there\nserved-model-name = ' a # \"b\" '\n"
                 "api-key = \"\"\nchat-template = # none\nmetrics-prefix = \"vllm:\"#x");
    ASSERT_PARSES(WEFT_PROG_SERVE, "m");
    assert_string_equal(config.host, "::1");
    assert_int_equal(config.port, 9);
    assert_string_equal(config.served_model_name, " a # \"b\" ");
    assert_string_equal(config.api_key, "");
    assert_string_equal(config.chat_template, "");
    assert_string_equal(config.metrics_prefix, "vllm:");
}

static void one_port_cannot_be_both(void **state) {
    (void)state;
    ASSERT_REFUSED(WEFT_E_INVAL, "--port and --rpc-port are both 9000", WEFT_PROG_SERVE, "m",
                   "--port=9000", "--rpc-port=9000");
    ASSERT_PARSES(WEFT_PROG_SERVE, "m", "--port=9000", "--rpc-port=9000", "--no-rpc");
    ASSERT_PARSES(WEFT_PROG_SERVE, "m", "--port=0", "--rpc-port=0");
}

static void origins_are_what_browsers_send(void **state) {
    (void)state;
    static const char *const good[] = {"*", "", "null", "http://a", "https://a:81 , null,http://b"};
    static const char *const bad[] = {"foo",  "foo bar",           "http://",
                                      "://a", "http://a http://b", "a,http://b",
                                      ",",    "http://a,",         "http://a,,http://b"};
    char flag[128], message[256];
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        (void)snprintf(flag, sizeof flag, "--allowed-origins=%s", good[i]);
        ASSERT_PARSES(WEFT_PROG_ROUTER, "m", flag);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        (void)snprintf(flag, sizeof flag, "--allowed-origins=%s", bad[i]);
        (void)snprintf(message, sizeof message,
                       "--allowed-origins is \"*\" or origins such as https://example.org, "
                       "separated by commas, not \"%s\"",
                       bad[i]);
        ASSERT_REFUSED(WEFT_E_INVAL, message, WEFT_PROG_ROUTER, "m", flag);
    }
}

static void one_file_serves_all_programs(void **state) {
    (void)state;
    write_config("host = 10.0.0.1\nmax-num-seqs = 9\nitl-target-ms = 50\nthreads = 3\n"
                 "scheduler-url = abstract://s\nworker-url = abstract://w\nprompt = hello\n"
                 "bench-prompt = 64,8\nlog-format = json\n");
    ASSERT_PARSES(WEFT_PROG_SERVE, "m");
    assert_string_equal(config.host, "10.0.0.1");
    assert_int_equal(config.threads, 3);
    assert_null(config.scheduler_url);
    ASSERT_PARSES(WEFT_PROG_ROUTER, "m");
    assert_string_equal(config.host, "10.0.0.1");
    assert_string_equal(config.scheduler_url, "abstract://s");
    assert_int_equal(config.max_num_seqs, 0);
    ASSERT_PARSES(WEFT_PROG_SCHEDULER, "--max-num-seqs=10");
    assert_null(config.host);
    assert_int_equal(config.max_num_seqs, 10);
    assert_int_equal(config.itl_target_ms, 50);
    assert_string_equal(config.worker_url, "abstract://w");
    ASSERT_PARSES(WEFT_PROG_WORKER, "m");
    assert_int_equal(config.threads, 3);
    assert_int_equal(config.max_num_seqs, 9);
    assert_string_equal(config.worker_url, "abstract://w");
    ASSERT_PARSES(WEFT_PROG_RUN, "m");
    assert_string_equal(config.prompt, "hello");
    ASSERT_PARSES(WEFT_PROG_BENCH, "m");
    assert_null(config.prompt);
    assert_string_equal(config.bench_prompt, "64,8");
    assert_string_equal(config.log_format, "json");
}

/* llama-server's name for it. */
static void a_folder_of_slots_is_one_of_sessions(void **state) {
    (void)state;
    ASSERT_PARSES(WEFT_PROG_SERVE, "m", "--slot-save-path", "/tmp");
    assert_string_equal(config.session_dir, "/tmp");
}

/* --step-target was the name of --itl-target-ms; whoever has it written down need not change it. */
static void a_setting_keeps_the_name_it_had(void **state) {
    (void)state;
    write_config("step_target = 50\n");
    ASSERT_PARSES(WEFT_PROG_SCHEDULER, "--max-num-seqs=10");
    assert_int_equal(config.itl_target_ms, 50);
    assert_true(config.given.itl_target_ms);
    set_env("WEFT_STEP_TARGET", "60");
    ASSERT_PARSES(WEFT_PROG_SERVE, "m");
    assert_int_equal(config.itl_target_ms, 60);
    set_env("WEFT_ITL_TARGET_MS", "auto"); /* the new name wins */
    ASSERT_PARSES(WEFT_PROG_SERVE, "m");
    assert_int_equal(config.itl_target_ms, WEFT_CONFIG_AUTO);
    ASSERT_PARSES(WEFT_PROG_SERVE, "m", "--step-target", "0");
    assert_int_equal(config.itl_target_ms, 0);
    ASSERT_PARSES(WEFT_PROG_SERVE, "m", "--itl-target-ms=7", "--step-target=8"); /* the last flag */
    assert_int_equal(config.itl_target_ms, 8);
    ASSERT_REFUSED(WEFT_E_INVAL,
                   "--itl-target-ms: \"x\" is neither auto nor a number from 0 to 60000",
                   WEFT_PROG_SERVE, "m", "--step-target=x");
    ASSERT_REFUSED(WEFT_E_INVAL, "unknown flag --step-target (try --help)", WEFT_PROG_RUN, "m",
                   "--step-target=8");
}

static void assert_file_refused(const char *text, const char *message) {
    char wanted[256];
    write_config(text);
    assert_int_equal(PARSE(WEFT_PROG_SERVE, "m"), WEFT_E_INVAL);
    (void)snprintf(wanted, sizeof wanted, "%s%s", config_path, message);
    assert_string_equal(why.text, wanted);
}

static void a_faulty_line_is_named_by_file_and_number(void **state) {
    (void)state;
    assert_file_refused("port = 1\n\nporrt = 2\n",
                        ":3: unknown setting \"porrt\"; did you mean \"port\"?");
    assert_file_refused("port 1\n", ":1: expected \"name = value\"");
    assert_file_refused("#\n--port = 1\n", ":2: unknown setting \"--port\"");
    assert_file_refused("= 1\n", ":1: unknown setting \"\"");
    assert_file_refused("config = other\n", ":1: unknown setting \"config\"");
    assert_file_refused("\x1b[2J = 1", ":1: unknown setting \"?[2J\"");
    assert_file_refused("port = 1\nmax_queue = many\n",
                        ":2: max-queue: \"many\" is not a number from 1 to 1000000");
    assert_file_refused("host = \"::1\n",
                        ":1: host: a quote has no end, or something stands behind it");
    assert_file_refused("host = 'a' b\n",
                        ":1: host: a quote has no end, or something stands behind it");
}

static void a_line_may_be_long_but_not_endless(void **state) {
    (void)state;
    static const size_t lens[] = {4000, 4095, 5000, 200000};
    for (size_t i = 0; i < sizeof lens / sizeof lens[0]; i++) {
        size_t n = lens[i];
        char *host = malloc(n), *text = malloc(n + 64);
        assert_true(host && text);
        memset(host, 'h', n - 7);
        host[n - 7] = '\0';
        (void)snprintf(text, n + 64, "port = 5\nhost = %s\nport = 6\n", host);
        if (n < 4095) {
            write_config(text);
            ASSERT_PARSES(WEFT_PROG_SERVE, "m");
            assert_int_equal(strlen(config.host), n - 7);
            assert_int_equal(config.port, 6);
        } else {
            assert_file_refused(text, ":2: line too long, or not text");
        }
        free(host);
        free(text);
    }
}

static void bytes_that_are_no_text_are_refused(void **state) {
    (void)state;
    write_config_bytes("po\0rt = 5\nport = 6\n", 20);
    assert_int_equal(PARSE(WEFT_PROG_SERVE, "m"), WEFT_E_INVAL);
    assert_non_null(strstr(why.text, ":1: line too long, or not text"));
}

static void a_file_that_cannot_be_read_is_an_error(void **state) {
    (void)state;
    ASSERT_REFUSED(WEFT_E_NOTFOUND,
                   "--config: cannot open \"/nowhere/x\": No such file or directory",
                   WEFT_PROG_SERVE, "m", "--config=/nowhere/x");
    ASSERT_REFUSED(WEFT_E_IO, "--config: cannot read \"/tmp\": Is a directory", WEFT_PROG_SERVE,
                   "m", "--config", "/tmp");
    write_config("");
    ASSERT_PARSES(WEFT_PROG_SERVE, "m"); /* empty is fine */
}

static void texts_of_a_file_outlive_it(void **state) {
    (void)state;
    write_config("host = one\n");
    ASSERT_PARSES(WEFT_PROG_SERVE, "m");
    const char *host = config.host;
    write_config("host = two\nhost = three\n");
    ASSERT_PARSES(WEFT_PROG_SERVE, "m");
    assert_string_equal(host, "one");
    assert_string_equal(config.host, "three");
}

/* ------------------------------------------------------------------------------------- argv --- */

static bool has_arg(char *const *args, uint32_t n, const char *wanted) {
    for (uint32_t i = 0; i < n; i++) {
        if (!strcmp(args[i], wanted)) return true;
    }
    return false;
}

/* The settings of `from` arrive at a child, which would pass on the same. Leaves the child's
 * settings in `config`. */
static void assert_round_trip(const struct weft_config *from, enum weft_program program) {
    char *told[ARGS_MAX + 1], *again[ARGS_MAX + 3] = {"weft", "the model"};
    uint32_t n_fixed = program == WEFT_PROG_SCHEDULER ? 1 : 2;
    uint32_t n = weft_config_argv(from, program, again + n_fixed, ARGS_MAX);
    assert_true(n > 3);
    for (uint32_t i = 0; i < n; i++) { /* `config` will borrow from them */
        assert_true(n_borrowed < BORROWED_MAX);
        borrowed[n_borrowed++] = again[n_fixed + i];
    }
    if (parse_args(program, again)) fail_msg("refused: %s", why.text);
    assert_int_equal(weft_config_argv(&config, program, told, ARGS_MAX), n);
    for (uint32_t i = 0; i < n; i++) {
        char *arg = again[n_fixed + i];
        assert_string_equal(told[i], arg);
        assert_ptr_equal(strstr(arg, "--"), arg);
        assert_null(strstr(arg, "secret"));
        free(told[i]);
    }
}

static struct weft_config supervisor_config(void) {
    set_env("WEFT_API_KEY", "secret");
    ASSERT_PARSES(WEFT_PROG_SERVE, "the model", "--host=::", "--port=1", "--rpc-port=2", "--no-rpc",
                  "--served-model-name= a \"name\" = b ", "--api-key-file=-keys",
                  "--max-body=64KiB", "--max-logprob-bytes=1TB", "--max-num-seqs=3",
                  "--max-num-batched-tokens=4", "--max-queue=5", "--itl-target-ms=6", "--dtype=q8",
                  "--scheduling-policy=edf", "--max-queued-tokens=4000000000", "--no-prefix-cache",
                  "--prefix-cache-per-key", "--queue-timeout=7", "--run-timeout=8",
                  "--activations=f32", "--kv-dtype=f16", "--kv-memory=999999999999999",
                  "--block-size=32", "--max-model-len=77", "--threads=8", "--workers=3",
                  "--log-format=json", "--log-level=warn",
                  "--allowed-origins=", "--metrics-prefix=vllm:", "--drain-timeout=0");
    struct weft_config from = config;
    from.scheduler_url = "abstract://weft-s";
    from.worker_url = "abstract://weft-w";
    from.status_fd = 9;
    from.weights_fd = 10;
    return from;
}

static void a_router_gets_the_supervisors_settings(void **state) {
    (void)state;
    struct weft_config from = supervisor_config();
    assert_round_trip(&from, WEFT_PROG_ROUTER);
    assert_string_equal(config.host, "::");
    assert_int_equal(config.port, 1);
    assert_int_equal(config.rpc_port, 2);
    assert_true(config.no_rpc);
    assert_string_equal(config.served_model_name, " a \"name\" = b ");
    assert_string_equal(config.api_key_file, "-keys");
    assert_string_equal(config.allowed_origins, "");
    assert_string_equal(config.metrics_prefix, "vllm:");
    assert_null(config.chat_template);
    assert_int_equal(config.max_body_bytes, 65536);
    assert_true(config.max_logprob_bytes == 1000000000000u);
    assert_int_equal(config.max_queue, 5);
    assert_int_equal(config.drain_timeout_ms, 0);
    assert_string_equal(config.scheduler_url, "abstract://weft-s");
    assert_int_equal(config.status_fd, 9);
    assert_int_equal(config.weights_fd, -1);       /* the worker's alone */
    assert_string_equal(config.api_key, "secret"); /* it came by the environment */
}

static void a_scheduler_gets_the_supervisors_settings(void **state) {
    (void)state;
    struct weft_config from = supervisor_config();
    assert_round_trip(&from, WEFT_PROG_SCHEDULER);
    assert_int_equal(config.max_num_seqs, 3);
    assert_int_equal(config.max_num_batched_tokens, 4);
    assert_int_equal(config.max_queue, 5);
    assert_int_equal(config.itl_target_ms, 6);
    assert_string_equal(config.scheduling_policy, "edf");
    assert_true(config.max_queued_tokens == 4000000000u);
    assert_true(config.no_prefix_cache);
    assert_int_equal(config.queue_timeout_ms, 7);
    assert_int_equal(config.run_timeout_ms, 8);
    assert_string_equal(config.scheduler_url, "abstract://weft-s");
    assert_string_equal(config.worker_url, "abstract://weft-w");
    assert_string_equal(config.log_format, "json");
    assert_string_equal(config.log_level, "warn");
    assert_null(config.api_key);
}

static void a_worker_gets_the_supervisors_settings(void **state) {
    (void)state;
    struct weft_config from = supervisor_config();
    assert_round_trip(&from, WEFT_PROG_WORKER);
    assert_string_equal(config.model, "the model");
    assert_string_equal(config.dtype, "q8");
    assert_string_equal(config.activations, "f32");
    assert_string_equal(config.kv_dtype, "f16");
    assert_true(config.kv_memory == 999999999999999u);
    assert_int_equal(config.block_size, 32);
    assert_int_equal(config.max_model_len, 77);
    assert_int_equal(config.threads, 8);
    assert_int_equal(config.n_workers, 3);
    assert_int_equal(config.max_num_seqs, 3);
    assert_int_equal(config.max_num_batched_tokens, 4);
    assert_int_equal(config.status_fd, 9);
    assert_int_equal(config.weights_fd, 10);
    assert_null(config.api_key);
}

static void defaults_make_the_round_trip_as_well(void **state) {
    (void)state;
    static const enum weft_program actors[] = {WEFT_PROG_ROUTER, WEFT_PROG_SCHEDULER,
                                               WEFT_PROG_WORKER};
    ASSERT_PARSES(WEFT_PROG_SERVE, "m");
    struct weft_config from = config;
    for (size_t i = 0; i < 3; i++)
        assert_round_trip(&from, actors[i]);
}

static void fractions_keep_every_bit(void **state) {
    (void)state;
    ASSERT_PARSES(WEFT_PROG_RUN, "m", "--temperature=0.1", "--top-p=0.30000000000000004",
                  "--seed=18446744073709551615", "--json", "-p", "x");
    struct weft_config from = config;
    assert_round_trip(&from, WEFT_PROG_RUN);
    assert_true(config.temperature == 0.1);
    assert_true(config.top_p == 0.30000000000000004);
    assert_true(config.seed == UINT64_MAX);
    assert_true(config.json);
    assert_false(config.ignore_eos);
    assert_string_equal(config.prompt, "x");
}

/* Who answers a file has settings of its own, and for the rest those of a server that nobody set up. */
static void a_batch_without_a_server_gives_its_actors_whole_settings(void **state) {
    (void)state;
    struct weft_errmsg error;
    ASSERT_REFUSED(WEFT_E_INVAL,
                   "no --batch given; usage: weft run MODEL --batch FILE [--output FILE] [options]",
                   WEFT_PROG_RUN_BATCH, "m");
    ASSERT_REFUSED(WEFT_E_INVAL, "unknown flag --port (try --help)", WEFT_PROG_RUN_BATCH, "m",
                   "--batch=f", "--port=1");
    ASSERT_REFUSED(WEFT_E_INVAL, "--batch-fd and --answers-fd need each other", WEFT_PROG_ROUTER,
                   "m", "--batch-fd=3");
    ASSERT_PARSES(WEFT_PROG_RUN_BATCH, "a/b", "-i", "in", "-o", "out", "--max-num-seqs=3");
    struct weft_config from = config;
    assert_false(from.given.port);
    assert_int_equal(weft_config_fill(&from, WEFT_PROG_SERVE, &error), WEFT_OK);
    assert_false(from.given.port);
    assert_true(from.given.max_num_seqs);
    assert_string_equal(from.batch_file, "in");
    assert_string_equal(from.batch_output, "out");
    from.scheduler_url = "abstract://weft-s";
    from.worker_url = "abstract://weft-w";
    from.batch_fd = 7;
    from.answers_fd = 8;
    assert_round_trip(&from, WEFT_PROG_WORKER);
    assert_round_trip(&from, WEFT_PROG_SCHEDULER);
    assert_int_equal(config.max_num_seqs, 3);
    assert_round_trip(&from, WEFT_PROG_ROUTER);
    assert_int_equal(config.batch_fd, 7);
    assert_int_equal(config.answers_fd, 8);
    assert_int_equal(config.max_connections, 16384);
    assert_string_equal(config.served_model_name, "b");
}

static void a_key_never_stands_in_argv(void **state) {
    (void)state;
    ASSERT_PARSES(WEFT_PROG_SERVE, "m", "--api-key=hunter2", "--api-key-file=keys.txt");
    char *args[ARGS_MAX];
    uint32_t n = weft_config_argv(&config, WEFT_PROG_ROUTER, args, ARGS_MAX);
    assert_true(has_arg(args, n, "--api-key-file=keys.txt"));
    assert_true(has_arg(args, n, "--no-rpc=false"));
    for (uint32_t i = 0; i < n; i++) {
        assert_null(strstr(args[i], "hunter2"));
        free(args[i]);
    }
}

static void argv_is_whole_or_not_at_all(void **state) {
    (void)state;
    ASSERT_PARSES(WEFT_PROG_SERVE, "m");
    char *args[ARGS_MAX];
    uint32_t n_granted = 0, n;
    for (;; n_granted++) {
        n_left = n_granted;
        n = weft_config_argv(&config, WEFT_PROG_ROUTER, args, ARGS_MAX);
        n_left = NEVER;
        if (n > 0) break;
    }
    assert_int_equal(n, n_granted); /* a flag each */
    assert_true(n > 3);
    while (n > 0)
        free(args[--n]);
}

static void some_texts_may_be_given_again_and_get_a_line_each(void **state) {
    (void)state;
    ASSERT_PARSES(WEFT_PROG_BENCH_SERVE, "http://h");
    assert_null(config.load_header);
    set_env("WEFT_HEADER", "a: 1");
    ASSERT_PARSES(WEFT_PROG_BENCH_SERVE, "http://h", "--header", "b: 2", "--header=c: 3");
    assert_string_equal(config.load_header, "a: 1\nb: 2\nc: 3");
    char *args[ARGS_MAX];
    uint32_t n = weft_config_argv(&config, WEFT_PROG_BENCH_SERVE, args, ARGS_MAX);
    assert_true(has_arg(args, n, "--header=a: 1\nb: 2\nc: 3"));
    while (n > 0)
        free(args[--n]);
}

static void a_list_takes_the_place_of_a_weaker_source_s(void **state) {
    (void)state;
    set_env("WEFT_SCHEDULER_URL", "a,b");
    ASSERT_PARSES(WEFT_PROG_ROUTER, "m");
    assert_string_equal(config.scheduler_url, "a,b");
    ASSERT_PARSES(WEFT_PROG_ROUTER, "m", "--scheduler-url", "c", "--scheduler-url=d");
    assert_string_equal(config.scheduler_url, "c\nd");
    assert_true(config.given.scheduler_url);
}

int main(void) {
#define CASE(fn) cmocka_unit_test_setup_teardown(fn, clean_environment, clean_up)
    const struct CMUnitTest tests[] = {
        CASE(defaults_are_what_help_tells),
        CASE(settings_that_a_program_does_not_know_stay_empty),
        CASE(flags_win_over_the_environment_and_that_over_the_file),
        CASE(what_somebody_gave_is_told_from_defaults),
        CASE(the_config_flag_wins_over_its_variable),
        CASE(the_last_of_two_equal_flags_wins),
        CASE(a_value_stands_behind_an_equals_sign_or_a_space),
        CASE(a_boolean_needs_no_value_but_takes_one_behind_an_equals_sign),
        CASE(sizes_take_units),
        CASE(what_is_out_of_range_is_refused_by_the_name_of_its_flag),
        CASE(both_ends_of_a_range_are_in_it),
        CASE(unknown_flags_are_refused),
        CASE(a_misspelt_flag_has_a_neighbour),
        CASE(a_word_is_one_of_those_that_help_lists),
        CASE(what_is_required_is_named),
        CASE(a_model_is_called_by_its_folder_or_file),
        CASE(types_may_have_their_names_in_pytorch),
        CASE(arguments_are_as_many_as_the_program_takes),
        CASE(a_missing_model_is_told_with_the_usage),
        CASE(settings_that_exclude_each_other_are_refused),
        CASE(run_has_short_names_for_prompt_and_length),
        CASE(bench_takes_lists_of_prompts_and_batches),
        CASE(rounds_are_reps),
        CASE(help_lists_the_programs_own_flags_with_their_defaults),
        CASE(help_is_as_wide_as_the_terminal_within_limits),
        CASE(help_shows_examples_and_then_settings_by_groups),
        CASE(man_pages_are_made_of_the_same_settings),
        CASE(a_command_is_known_or_has_a_neighbour),
        CASE(version_is_printed_by_every_program),
        CASE(a_descriptor_never_comes_from_the_environment_or_a_file),
        CASE(variables_of_other_programs_are_not_looked_at),
        CASE(what_kubernetes_says_of_a_service_is_no_setting),
        CASE(a_variable_that_nobody_reads_is_told),
        CASE(a_file_has_comments_blank_lines_and_either_kind_of_dash),
        CASE(values_may_stand_in_quotes_and_before_comments),
        CASE(one_port_cannot_be_both),
        CASE(origins_are_what_browsers_send),
        CASE(one_file_serves_all_programs),
        CASE(a_setting_keeps_the_name_it_had),
        CASE(a_folder_of_slots_is_one_of_sessions),
        CASE(a_faulty_line_is_named_by_file_and_number),
        CASE(a_line_may_be_long_but_not_endless),
        CASE(bytes_that_are_no_text_are_refused),
        CASE(a_file_that_cannot_be_read_is_an_error),
        CASE(texts_of_a_file_outlive_it),
        CASE(a_router_gets_the_supervisors_settings),
        CASE(a_scheduler_gets_the_supervisors_settings),
        CASE(a_worker_gets_the_supervisors_settings),
        CASE(defaults_make_the_round_trip_as_well),
        CASE(fractions_keep_every_bit),
        CASE(a_batch_without_a_server_gives_its_actors_whole_settings),
        CASE(a_key_never_stands_in_argv),
        CASE(argv_is_whole_or_not_at_all),
        CASE(some_texts_may_be_given_again_and_get_a_line_each),
        CASE(a_list_takes_the_place_of_a_weaker_source_s),
    };
    return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
