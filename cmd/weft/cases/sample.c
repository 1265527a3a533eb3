/* `weft sample`: the engine's samplers on the logits of a file, for tests from outside. The JSON lists cases,
 * each with the steps of one chain; draws of Mirostat; and candidates of contrastive search. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "cases/sample_check.h"
#include "cases/sample_file.h"
#include "commands.h"
#include "engine/engine.h"
#include "json_text.h"

enum { TOKENS_MAX = 1 << 20, BEST_SHOWN = 5, BIAS_MAX = WEFT_LOGIT_BIAS_MAX };

/* Where results go until all are there: whoever reads them gets all or none. */
struct printer {
    FILE *out;
    bool as_json;
};

/* A case as the engine takes it. */
struct setup {
    struct weft_sampling sampling;
    struct weft_logit_bias bias[BIAS_MAX];
    uint32_t breakers[WEFT_DRY_BREAKERS_MAX];
    uint32_t *tokens; /* [n_tokens], owned */
    uint32_t n_prompt, n_tokens;
    double xtc_draw;
};

/* ------------------------------------------------------------------------------------- steps --- */

static float number(const json_t *args, const char *name) {
    return (float)json_number_value(json_object_get(args, name));
}

static weft_err add_token(struct setup *s, const json_t *item, struct weft_errmsg *why) {
    json_int_t id = json_is_integer(item) ? json_integer_value(item) : -1;
    if (id < 0 || id >= WEFT_VOCAB_MAX || s->n_tokens == TOKENS_MAX)
        return weft_err_set(why, WEFT_E_INVAL, "a history is no list of token ids");
    s->tokens[s->n_tokens++] = (uint32_t)id;
    return WEFT_OK;
}

/* The sequence: a case has one, whichever of its steps speaks of it. */
static weft_err set_history(struct setup *s, const json_t *prompt, const json_t *output,
                            struct weft_errmsg *why) {
    size_t n = json_array_size(prompt) + json_array_size(output), i;
    const json_t *item;
    weft_err err = WEFT_OK;
    if (s->tokens) return weft_err_set(why, WEFT_E_INVAL, "two steps have a history each");
    s->tokens = malloc((n + 1) * sizeof *s->tokens);
    if (!s->tokens) return weft_err_set(why, WEFT_E_NOMEM, "no memory");
    json_array_foreach(prompt, i, item) {
        if (!err) err = add_token(s, item, why);
    }
    s->n_prompt = s->n_tokens;
    json_array_foreach(output, i, item) {
        if (!err) err = add_token(s, item, why);
    }
    return err;
}

static int32_t last_n(const json_t *args) {
    json_int_t n = json_integer_value(json_object_get(args, "last_n"));
    return n < 0 ? -1 : n < WEFT_CONTEXT_MAX ? (int32_t)n : (int32_t)WEFT_CONTEXT_MAX;
}

static weft_err set_penalties(struct setup *s, const json_t *args, struct weft_errmsg *why) {
    s->sampling.repetition_penalty = number(args, "repetition");
    s->sampling.frequency_penalty = number(args, "frequency");
    s->sampling.presence_penalty = number(args, "presence");
    s->sampling.repeat_last_n = last_n(args);
    return set_history(s, json_object_get(args, "prompt"), json_object_get(args, "output"), why);
}

static weft_err set_dry(struct setup *s, const json_t *args, struct weft_errmsg *why) {
    const json_t *breakers = json_object_get(args, "breakers");
    json_int_t allowed = json_integer_value(json_object_get(args, "allowed_length"));
    if (json_array_size(breakers) > WEFT_DRY_BREAKERS_MAX)
        return weft_err_set(why, WEFT_E_INVAL, "%zu breakers, at most %d are allowed",
                            json_array_size(breakers), WEFT_DRY_BREAKERS_MAX);
    s->sampling.dry_multiplier = number(args, "multiplier");
    s->sampling.dry_base = number(args, "base");
    s->sampling.dry_allowed_length = allowed > 0 ? (uint32_t)allowed : 0;
    s->sampling.dry_penalty_last_n = last_n(args);
    s->sampling.dry_breakers = s->breakers;
    for (size_t i = 0; i < json_array_size(breakers); i++)
        s->breakers[s->sampling.n_dry_breakers++] =
            (uint32_t)json_integer_value(json_array_get(breakers, i));
    return set_history(s, json_object_get(args, "history"), NULL, why);
}

static int by_token(const void *a, const void *b) {
    const struct weft_logit_bias *x = a, *y = b;
    return (x->token > y->token) - (x->token < y->token);
}

static weft_err set_bias(struct setup *s, const json_t *args, struct weft_errmsg *why) {
    json_t *bias = json_object_get(args, "bias"), *value;
    const char *key;
    if (json_object_size(bias) > BIAS_MAX)
        return weft_err_set(why, WEFT_E_INVAL, "%zu biases, at most %d are allowed",
                            json_object_size(bias), BIAS_MAX);
    json_object_foreach(bias, key, value) {
        s->bias[s->sampling.n_bias++] = (struct weft_logit_bias){(uint32_t)strtoul(key, NULL, 10),
                                                                 (float)json_number_value(value)};
    }
    qsort(s->bias, s->sampling.n_bias, sizeof s->bias[0], by_token);
    s->sampling.bias = s->bias;
    return WEFT_OK;
}

static weft_err set_xtc(struct setup *s, const json_t *args, struct weft_errmsg *why) {
    (void)why;
    s->sampling.xtc_threshold = number(args, "threshold");
    s->sampling.xtc_probability = number(args, "probability");
    s->xtc_draw = json_number_value(json_object_get(args, "draw"));
    return WEFT_OK;
}

static weft_err set_dynamic(struct setup *s, const json_t *args, struct weft_errmsg *why) {
    (void)why;
    s->sampling.temperature = number(args, "t");
    s->sampling.dynatemp_range = number(args, "delta");
    s->sampling.dynatemp_exponent = number(args, "exponent");
    return WEFT_OK;
}

static weft_err set_top_k(struct setup *s, const json_t *args, struct weft_errmsg *why) {
    json_int_t k = json_integer_value(json_object_get(args, "k"));
    (void)why;
    s->sampling.top_k = k > 0 && k < UINT32_MAX ? (uint32_t)k : 0;
    return WEFT_OK;
}

/* The functions of the file's definitions: those with one number, and those with more. */
static const struct function {
    const char *name, *arg;
    enum weft_sampler sampler;
    size_t offset;
    weft_err (*set)(struct setup *setup, const json_t *args, struct weft_errmsg *why);
} functions[] = {
#define ONE(name, arg, sampler, field)                                                             \
    { name, arg, sampler, offsetof(struct weft_sampling, field), NULL }
    ONE("temperature", "t", WEFT_SAMPLER_TEMPERATURE, temperature),
    ONE("top_p", "p", WEFT_SAMPLER_TOP_P, top_p),
    ONE("min_p", "m", WEFT_SAMPLER_MIN_P, min_p),
    ONE("typical", "mass", WEFT_SAMPLER_TYPICAL, typical_p),
    ONE("top_n_sigma", "n", WEFT_SAMPLER_TOP_N_SIGMA, top_n_sigma),
    ONE("tail_free", "z", WEFT_SAMPLER_TAIL_FREE, tfs_z),
#undef ONE
    {"dynamic_temperature", NULL, WEFT_SAMPLER_TEMPERATURE, 0, set_dynamic},
    {"top_k", NULL, WEFT_SAMPLER_TOP_K, 0, set_top_k},
    {"xtc", NULL, WEFT_SAMPLER_XTC, 0, set_xtc},
    {"penalties", NULL, WEFT_SAMPLER_PENALTIES, 0, set_penalties},
    {"dry", NULL, WEFT_SAMPLER_DRY, 0, set_dry},
    {"logit_bias", NULL, WEFT_SAMPLER_COUNT, 0, set_bias},
};

/* logit_bias comes before all samplers, here as in requests. */
static weft_err set_step(struct setup *s, const json_t *step, struct weft_errmsg *why) {
    const char *name = json_string_value(json_array_get(step, 0));
    const json_t *args = json_array_get(step, 1);
    const struct function *f = functions, *end = f + sizeof functions / sizeof functions[0];
    while (name && f < end && strcmp(f->name, name) != 0)
        f++;
    if (!name || f == end)
        return weft_err_set(why, WEFT_E_INVAL, "\"%.40s\" is no step of a case", name ? name : "");
    enum weft_sampler order[WEFT_SAMPLER_COUNT];
    for (uint32_t i = weft_samplers_list(s->sampling.samplers, order); i > 0; i--) {
        if (order[i - 1] == f->sampler)
            return weft_err_set(why, WEFT_E_INVAL, "a case has %s twice", name);
    }
    if (f->sampler < WEFT_SAMPLER_COUNT)
        s->sampling.samplers = weft_samplers_add(s->sampling.samplers, f->sampler);
    if (f->set) return f->set(s, args, why);
    *(float *)(void *)((char *)&s->sampling + f->offset) = number(args, f->arg);
    return WEFT_OK;
}

static void begin_setup(struct setup *s, const json_t *of) {
    const char *variant = json_string_value(json_object_get(of, "variant"));
    *s = (struct setup){.tokens = NULL};
    weft_sampling_init(&s->sampling);
    s->sampling.temperature = 1.0f;
    s->sampling.samplers = WEFT_SAMPLERS_NONE;
    if (variant && strcmp(variant, "llama.cpp") == 0) s->sampling.variant = WEFT_VARIANT_LLAMA_CPP;
}

/* The logits of a case, or of a step of Mirostat. */
static weft_err find_logits(const struct weft_sample_file *file, const json_t *of,
                            struct weft_sample_array *out, struct weft_errmsg *why) {
    char name[128];
    const char *vector = json_string_value(json_object_get(of, "vector"));
    (void)snprintf(name, sizeof name, "logits.%s", vector ? vector : "");
    weft_err err = weft_sample_file_find(file, name, out, why);
    if (!err && out->n_cols > WEFT_VOCAB_MAX)
        err = weft_err_set(why, WEFT_E_INVAL, "\"%s\" is longer than any vocabulary", name);
    return err;
}

/* ------------------------------------------------------------------------------------- cases --- */

static void print_list(const struct printer *to, const double *values, size_t n) {
    (void)fputc('[', to->out);
    for (size_t i = 0; i < n; i++)
        fprintf(to->out, i == 0 ? "%.17g" : ", %.17g", values[i]);
    (void)fputc(']', to->out);
}

/* How many can come, and the likeliest few. */
static void print_best(const struct printer *to, const double *p, uint32_t n) {
    uint32_t n_kept = 0, last = n;
    for (uint32_t i = 0; i < n; i++)
        n_kept += p[i] > 0.0;
    fprintf(to->out, "%u kept:", n_kept);
    for (uint32_t shown = 0; shown < BEST_SHOWN && shown < n_kept; shown++) {
        uint32_t best = n;
        for (uint32_t i = 0; i < n; i++) {
            bool is_before = last == n || p[i] < p[last] || (p[i] == p[last] && i > last);
            if (is_before && (best == n || p[i] > p[best])) best = i;
        }
        fprintf(to->out, " %u %.6f", best, p[best]);
        last = best;
    }
    (void)fputc('\n', to->out);
}

/* Cases share names, but not the arrays that they expect. */
static const char *name_of(const json_t *test) {
    const char *name = json_string_value(json_object_get(test, "expected"));
    if (!name) name = json_string_value(json_object_get(test, "name"));
    return name ? name : "?";
}

static weft_err run_case(const struct weft_sample_file *file, const json_t *test,
                         const struct printer *to, struct weft_errmsg *why) {
    struct setup *s = malloc(sizeof *s);
    struct weft_sample_array logits = {0};
    double *p = NULL;
    size_t i;
    const json_t *step;
    if (!s) return weft_err_set(why, WEFT_E_NOMEM, "no memory");
    begin_setup(s, test);
    weft_err err = find_logits(file, test, &logits, why);
    json_array_foreach(json_object_get(test, "steps"), i, step) {
        if (!err) err = set_step(s, step, why);
    }
    if (!err) p = calloc(logits.n_cols, sizeof *p);
    if (!err && !p) err = weft_err_set(why, WEFT_E_NOMEM, "no memory");
    const struct weft_eng_given given = {.logits = logits.values,
                                         .n_vocab = (uint32_t)logits.n_cols,
                                         .sampling = &s->sampling,
                                         .tokens = s->tokens,
                                         .n_prompt = s->n_prompt,
                                         .n_tokens = s->n_tokens,
                                         .xtc_draw = &s->xtc_draw};
    if (!err) err = weft_eng_given_probabilities(&given, p, why);
    if (!err && to->as_json)
        print_list(to, p, logits.n_cols);
    else if (!err)
        print_best(to, p, given.n_vocab);
    free(p);
    free(s->tokens);
    free(s);
    return err;
}

static void print_name(const char *name, bool is_first, const struct printer *to) {
    if (to->as_json) {
        fprintf(to->out, is_first ? "" : ",\n");
        weft_print_json_string(to->out, name, strlen(name));
    } else {
        fprintf(to->out, "%s", name);
    }
    fprintf(to->out, ": ");
}

static weft_err run_cases(const struct weft_sample_file *file, const struct printer *to,
                          struct weft_errmsg *why) {
    weft_err err = WEFT_OK;
    const json_t *test;
    size_t i;
    json_array_foreach(json_object_get(file->cases, "cases"), i, test) {
        struct weft_errmsg detail = {""};
        if (err) break;
        print_name(name_of(test), i == 0, to);
        err = run_case(file, test, to, &detail);
        if (err) err = weft_err_set(why, err, "%s: %s", name_of(test), detail.text);
    }
    return err;
}

/* ---------------------------------------------------------------------------------- Mirostat --- */

/* JSON has no NaN, and no infinity. */
static void print_number(const struct printer *to, const char *key, double value) {
    if (isfinite(value))
        fprintf(to->out, "\"%s\": %.17g, ", key, value);
    else
        fprintf(to->out, "\"%s\": null, ", key);
}

static void print_draw(const struct weft_eng_mirostat *drawn, bool is_first_kind,
                       const struct printer *to) {
    if (!to->as_json) {
        fprintf(to->out, "  %u of %u, surprise %.6f, mu %.6f\n", drawn->token, drawn->n_kept,
                drawn->surprise, drawn->mu);
        return;
    }
    (void)fputc('{', to->out);
    if (is_first_kind) {
        print_number(to, "s_hat", drawn->s_hat);
        print_number(to, "k", drawn->k);
    }
    print_number(to, "p", drawn->p);
    print_number(to, "surprise", drawn->surprise);
    print_number(to, "mu", drawn->mu);
    fprintf(to->out, "\"kept\": %u, \"token\": %u}", drawn->n_kept, drawn->token);
}

/* One chain of draws: mu goes from one to the next. */
static weft_err run_mirostat(const struct weft_sample_file *file, const json_t *chain,
                             const struct printer *to, struct weft_errmsg *why) {
    struct weft_sampling s;
    const char *kind = json_string_value(json_object_get(chain, "sampler"));
    const char *variant = json_string_value(json_object_get(chain, "variant"));
    double mu = json_number_value(json_object_get(chain, "mu_start"));
    weft_err err = WEFT_OK;
    const json_t *step;
    size_t i;
    weft_sampling_init(&s);
    s.mirostat = kind && strcmp(kind, "mirostat1") == 0 ? 1 : 2;
    s.mirostat_tau = number(chain, "tau");
    s.mirostat_eta = number(chain, "eta");
    if (variant && strcmp(variant, "llama.cpp") == 0) s.variant = WEFT_VARIANT_LLAMA_CPP;
    json_array_foreach(json_object_get(chain, "steps"), i, step) {
        struct weft_sample_array logits;
        struct weft_eng_mirostat drawn;
        err = find_logits(file, step, &logits, why);
        if (err) break;
        const struct weft_eng_given given = {
            .logits = logits.values, .n_vocab = (uint32_t)logits.n_cols, .sampling = &s};
        double draw = json_number_value(json_object_get(step, "draw"));
        err = weft_eng_given_mirostat(&given, mu, draw, &drawn, why);
        if (err) break;
        if (to->as_json && i > 0) fprintf(to->out, ", ");
        print_draw(&drawn, s.mirostat == 1, to);
        mu = drawn.mu;
    }
    return err;
}

static weft_err run_mirostats(const struct weft_sample_file *file, const struct printer *to,
                              struct weft_errmsg *why) {
    weft_err err = WEFT_OK;
    const json_t *chain;
    size_t i;
    json_array_foreach(json_object_get(file->cases, "mirostat"), i, chain) {
        const char *kind = json_string_value(json_object_get(chain, "sampler"));
        if (to->as_json)
            fprintf(to->out, "%s{\"steps\": [", i > 0 ? ",\n" : "");
        else
            fprintf(to->out, "%s:\n", kind ? kind : "mirostat2");
        err = run_mirostat(file, chain, to, why);
        if (err) break;
        if (to->as_json) fprintf(to->out, "]}");
    }
    return err;
}

/* ------------------------------------------------------------------------ contrastive search --- */

static weft_err find_hidden(const struct weft_sample_file *file, size_t idx, const char *which,
                            struct weft_sample_array *out, struct weft_errmsg *why) {
    char name[64];
    (void)snprintf(name, sizeof name, "contrastive_%zu.%s_hidden", idx, which);
    return weft_sample_file_find(file, name, out, why);
}

static void print_candidates(const struct weft_eng_candidate *c, uint32_t n, uint32_t chosen,
                             const struct printer *to) {
    for (uint32_t i = 0; !to->as_json && i < n; i++)
        fprintf(to->out, "  %s%u p %.6f, cosine %.6f, score %.6f\n", i == chosen ? "* " : "",
                c[i].token, c[i].p, c[i].max_cosine, c[i].score);
    if (!to->as_json) return;
    fprintf(to->out, "{\"candidates\": [");
    for (uint32_t i = 0; i < n; i++)
        fprintf(to->out, i ? ", %u" : "%u", c[i].token);
    fprintf(to->out, "], \"p\": [");
    for (uint32_t i = 0; i < n; i++)
        fprintf(to->out, i ? ", %.17g" : "%.17g", c[i].p);
    fprintf(to->out, "], \"max_cosine\": [");
    for (uint32_t i = 0; i < n; i++)
        fprintf(to->out, i ? ", %.17g" : "%.17g", c[i].max_cosine);
    fprintf(to->out, "], \"score\": [");
    for (uint32_t i = 0; i < n; i++)
        fprintf(to->out, i ? ", %.17g" : "%.17g", c[i].score);
    fprintf(to->out, "], \"chosen\": %u}", c[chosen].token);
}

static weft_err run_contrastive(const struct weft_sample_file *file, const json_t *test, size_t idx,
                                const struct printer *to, struct weft_errmsg *why) {
    struct weft_sample_array logits, candidates, context = {0};
    struct weft_sampling s;
    uint32_t chosen = 0;
    weft_sampling_init(&s);
    weft_err err = find_logits(file, test, &logits, why);
    if (!err) err = find_hidden(file, idx, "candidate", &candidates, why);
    if (!err) err = find_hidden(file, idx, "context", &context, why);
    if (err) return err;
    if (candidates.n_cols != context.n_cols || candidates.n_rows > logits.n_cols ||
        candidates.n_rows == 0 || context.n_rows == 0)
        return weft_err_set(why, WEFT_E_INVAL, "hidden states of contrastive search %zu do not fit",
                            idx);
    const struct weft_eng_given given = {
        .logits = logits.values, .n_vocab = (uint32_t)logits.n_cols, .sampling = &s};
    const struct weft_eng_contrastive search = {
        .k = (uint32_t)candidates.n_rows,
        .n_context = (uint32_t)context.n_rows,
        .n_dims = (uint32_t)context.n_cols,
        .alpha = json_number_value(json_object_get(test, "alpha")),
        .candidates = candidates.values,
        .context = context.values};
    struct weft_eng_candidate *out = calloc(search.k, sizeof *out);
    if (!out) return weft_err_set(why, WEFT_E_NOMEM, "no memory");
    err = weft_eng_given_contrastive(&given, &search, out, &chosen, why);
    if (!err) print_candidates(out, search.k, chosen, to);
    free(out);
    return err;
}

static weft_err run_contrastives(const struct weft_sample_file *file, const struct printer *to,
                                 struct weft_errmsg *why) {
    weft_err err = WEFT_OK;
    const json_t *test;
    size_t i;
    json_array_foreach(json_object_get(file->cases, "contrastive"), i, test) {
        if (to->as_json)
            fprintf(to->out, "%s", i > 0 ? ",\n" : "");
        else
            fprintf(to->out, "contrastive_%zu:\n", i);
        err = run_contrastive(file, test, i, to, why);
        if (err) break;
    }
    return err;
}

static weft_err run_all(const struct weft_sample_file *file, const struct printer *to,
                        struct weft_errmsg *why) {
    bool has_cases = json_array_size(json_object_get(file->cases, "cases")) > 0;
    if (to->as_json) fprintf(to->out, "{");
    weft_err err = run_cases(file, to, why);
    if (to->as_json) fprintf(to->out, "%s\"mirostat\": [", has_cases ? ",\n" : "");
    if (!err) err = run_mirostats(file, to, why);
    if (to->as_json) fprintf(to->out, "],\n\"contrastive\": [");
    if (!err) err = run_contrastives(file, to, why);
    if (to->as_json) fprintf(to->out, "]}\n");
    return err;
}

int weft_cmd_sample(const struct weft_config *config) {
    struct weft_errmsg why = {""};
    struct weft_sample_file file;
    char *text = NULL;
    size_t len = 0;
    struct printer to = {NULL, config->json};
    weft_err err = weft_sample_file_open(config->cases, &file, &why);
    if (!err) err = weft_sample_check(file.cases, &why);
    if (!err) to.out = open_memstream(&text, &len);
    if (!err && !to.out) err = weft_err_set(&why, WEFT_E_NOMEM, "no memory");
    if (!err) err = run_all(&file, &to, &why);
    if (to.out && fclose(to.out) != 0 && !err) err = weft_err_set(&why, WEFT_E_NOMEM, "no memory");
    if (!err) (void)fwrite(text, 1, len, stdout);
    free(text);
    weft_sample_file_close(&file);
    return err ? weft_cmd_fail(err, &why) : 0;
}
