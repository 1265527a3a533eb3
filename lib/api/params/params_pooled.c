/* Texts of which vectors or scores are wanted. What a model can do follows from its purpose: a text for
 * a vector, a pair for a score; where there are only vectors, a score is their cosine. */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "model/model.h"
#include "params/params_internal.h"

/* ------------------------------------------------------------------------------- the purpose --- */

/* The two kinds of models that there are besides. */
static void refuse(const struct reader *r, const struct weft_api_limits *limits, const char *what,
                   const char *help) {
    static const char *const does[] = {
        [WEFT_MODEL_GENERATES] = "generates text",
        [WEFT_MODEL_EMBEDS] = "embeds texts",
        [WEFT_MODEL_CLASSIFIES] = "classifies texts",
    };
    weft_api_error_set(r->error, 400, "model", "model_not_pooling", "this model %s and has no %s%s",
                       does[limits->purpose.task], what, help);
}

static void want_vectors(const struct reader *r, const struct weft_api_limits *limits,
                         struct pooled *pooled) {
    const struct weft_api_purpose *purpose = &limits->purpose;
    if (purpose->task != WEFT_MODEL_EMBEDS) {
        refuse(r, limits, "embeddings",
               purpose->task == WEFT_MODEL_GENERATES
                   ? ": a server started with --runner pooling embeds with it"
                   : "");
        return;
    }
    pooled->want = POOLED_VECTORS;
    pooled->pooling.kind = purpose->model->kind;
    pooled->normalises = purpose->model->normalises;
}

static void want_labels(const struct reader *r, const struct weft_api_limits *limits,
                        struct pooled *pooled) {
    if (limits->purpose.task != WEFT_MODEL_CLASSIFIES) {
        refuse(r, limits, "classes", "");
        return;
    }
    pooled->want = POOLED_LABELS;
    pooled->pooling.kind = WEFT_POOLING_CLASSIFY;
}

static void want_scores(const struct reader *r, const struct weft_api_limits *limits,
                        struct pooled *pooled) {
    const struct weft_api_purpose *purpose = &limits->purpose;
    if (purpose->judges) {
        pooled->pooling = (struct weft_pooling){
            .kind = WEFT_POOLING_TOKENS, .n_ids = 2, .ids = {purpose->yes_id, purpose->no_id}};
        pooled->judges = true;
    } else if (purpose->task == WEFT_MODEL_EMBEDS) {
        want_vectors(r, limits, pooled);
        pooled->compares = pooled->normalises = true;
    } else if (purpose->task == WEFT_MODEL_CLASSIFIES && purpose->model->n_labels == 1) {
        want_labels(r, limits, pooled);
    } else {
        refuse(r, limits, "scores of pairs", "");
    }
    pooled->want = POOLED_SCORES;
}

/* ---------------------------------------------------------------------- what stands before --- */

static const struct weft_model_prompt *find_prompt(const struct weft_model_pooling *model,
                                                   const char *name) {
    for (uint32_t i = 0; i < model->n_prompts; i++) {
        if (strcmp(model->prompts[i].name, name) == 0) return &model->prompts[i];
    }
    return NULL;
}

/* Cohere's names of kinds of texts beside those that models have. */
static const struct weft_model_prompt *find_type(const struct weft_model_pooling *model,
                                                 const char *type) {
    static const char *const others[][3] = {
        {"search_query", "query", NULL},
        {"query", "search_query", NULL},
        {"search_document", "document", "passage"},
        {"document", "search_document", "passage"},
        {"passage", "document", "search_document"},
    };
    const struct weft_model_prompt *prompt = find_prompt(model, type);
    for (size_t i = 0; !prompt && i < sizeof others / sizeof others[0]; i++) {
        if (strcmp(type, others[i][0]) != 0) continue;
        for (size_t k = 1; !prompt && k < 3 && others[i][k]; k++)
            prompt = find_prompt(model, others[i][k]);
    }
    return prompt;
}

static const struct weft_model_prompt *usual_prompt(const struct weft_model_pooling *model) {
    return model->default_prompt < model->n_prompts ? &model->prompts[model->default_prompt] : NULL;
}

/* By "prompt_name", which the model must have; or by "input_type", which it may lack. */
static const struct weft_model_prompt *read_prompt_name(const struct reader *r,
                                                        const struct weft_model_pooling *model) {
    const json_t *name = wefti_api_json_get(r, "prompt_name");
    const json_t *type = wefti_api_json_get(r, "input_type");
    if (name && !json_is_string(name))
        wefti_api_json_wrong_type(r, "prompt_name", "a string", name);
    if (type && !json_is_string(type)) wefti_api_json_wrong_type(r, "input_type", "a string", type);
    if (!wefti_api_json_ok(r)) return NULL;
    const struct weft_model_prompt *prompt = NULL;
    if (name) prompt = find_prompt(model, json_string_value(name));
    if (name && !prompt)
        weft_api_error_set(r->error, 400, "prompt_name", NULL,
                           "the model has no prompt of that name%s%s",
                           model->n_prompts > 0 ? "; one that it has is " : "",
                           model->n_prompts > 0 ? model->prompts[0].name : "");
    if (!name && type) prompt = find_type(model, json_string_value(type));
    return name || type ? prompt : usual_prompt(model);
}

/* ---------------------------------------------------------------------------------- vectors --- */

static void read_encoding(const struct reader *r, struct params *params) {
    const json_t *format = wefti_api_json_get(r, "encoding_format");
    params->pooled.is_base64 = wefti_api_json_is_text(format, "base64");
    if (format && !params->pooled.is_base64 && !wefti_api_json_is_text(format, "float"))
        weft_api_error_set(r->error, 400, "encoding_format", NULL,
                           "'encoding_format' must be \"float\" or \"base64\"");
    wefti_api_json_get_bool(r, "add_special_tokens", &params->add_special);
}

static void read_vector(const struct reader *r, const struct weft_api_limits *limits,
                        struct params *params) {
    int64_t n = 0, max = limits->shape.n_hidden > 0 ? limits->shape.n_hidden : WEFT_HIDDEN_MAX;
    wefti_api_json_get_int(r, "dimensions", 1, max, &n);
    params->pooled.n_values = (uint32_t)n;
    wefti_api_json_get_bool(r, "normalize", &params->pooled.normalises);
    const struct weft_model_prompt *before = read_prompt_name(r, limits->purpose.model);
    for (uint32_t i = 0; i < params->n_prompts; i++)
        params->prompts[i].before = before;
}

static void begin(const struct reader *r, struct params *params) {
    weft_sampling_init(&params->sampling);
    params->sampling.max_tokens = 0;
    params->has_max_tokens = true;
    params->n = 1;
    params->add_special = true;
    wefti_api_params_refuse_unsupported(r);
}

/* vLLM's name of what a model is to be used for: each has one use here, and no other is passed over. */
static void check_task(const struct reader *r, bool classifies) {
    const json_t *task = wefti_api_json_get(r, "task");
    const char *only = classifies ? "classify" : "embed";
    if (task && !json_is_null(task) && !wefti_api_json_is_text(task, only))
        weft_api_error_set(r->error, 400, "task", NULL,
                           "'task' must be \"%s\", which is what this model does", only);
}

void wefti_api_params_read_input(const struct reader *r, const char *name,
                                 const struct weft_api_limits *limits, enum pooled_want want,
                                 struct params *params) {
    begin(r, params);
    bool classifies = want == POOLED_LABELS ||
                      (want == POOLED_NOTHING && limits->purpose.task == WEFT_MODEL_CLASSIFIES);
    if (classifies)
        want_labels(r, limits, &params->pooled);
    else
        want_vectors(r, limits, &params->pooled);
    if (want == POOLED_NOTHING) check_task(r, classifies);
    if (!wefti_api_json_ok(r)) return;
    wefti_api_params_read_prompts(r, name, limits, params);
    read_encoding(r, params);
    if (!classifies) read_vector(r, limits, params);
}

/* ------------------------------------------------------------------------------------ pairs --- */

/* A string, or an object with it as its "text". NULL: neither, which is an error. */
static const json_t *text_of(const struct reader *r, const char *name, const json_t *value) {
    const json_t *text = json_is_object(value) ? json_object_get(value, "text") : value;
    if (json_is_string(text)) return text;
    wefti_api_json_wrong_type(r, name, "a string or an object with a \"text\"", value);
    return NULL;
}

/* A list, or one text as the list of it. */
struct texts {
    const char *name;
    const json_t *value;
    size_t n;
};

static struct texts read_list(const struct reader *r, const char *name,
                              const struct weft_api_limits *limits) {
    struct texts texts = {.name = name, .value = wefti_api_json_get(r, name)};
    if (!wefti_api_json_ok(r)) return texts;
    texts.n = json_is_array(texts.value) ? json_array_size(texts.value) : 1;
    if (!texts.value)
        weft_api_error_set(r->error, 400, name, "missing_required_parameter",
                           "you must provide a '%s' parameter", name);
    else if (texts.n == 0)
        weft_api_error_set(r->error, 400, name, NULL, "'%s' must not be empty", name);
    else if (texts.n > limits->max_prompts)
        weft_api_error_set(r->error, 400, name, NULL,
                           "'%s' holds %zu texts, at most %u are allowed in one request", name,
                           texts.n, limits->max_prompts);
    return texts;
}

static const json_t *item_of(const struct reader *r, const struct texts *texts, size_t i) {
    bool is_list = json_is_array(texts->value);
    return text_of(r, texts->name, is_list ? json_array_get(texts->value, i) : texts->value);
}

static void set_text(struct prompt *prompt, const json_t *text) {
    prompt->text = json_string_value(text);
    prompt->text_len = json_string_length(text);
}

static struct prompt *make_prompts(const struct reader *r, const struct weft_api_limits *limits,
                                   size_t n, struct params *params) {
    if (n > limits->max_prompts) {
        weft_api_error_set(r->error, 400, NULL, NULL,
                           "%zu texts are to be embedded, at most %u are allowed in one request", n,
                           limits->max_prompts);
        return NULL;
    }
    WEFT_ASSERT(n > 0);
    params->prompts = calloc(n, sizeof *params->prompts);
    if (!params->prompts) weft_api_error_set(r->error, 500, NULL, NULL, "out of memory");
    if (params->prompts) params->n_prompts = (uint32_t)n;
    return params->prompts;
}

/* Each document with its query, or with the only one: as pairs, or one after the other. */
static void pair_up(const struct reader *r, const struct weft_api_limits *limits,
                    const struct texts *queries, const struct texts *documents,
                    struct params *params) {
    struct pooled *pooled = &params->pooled;
    size_t n_apart = pooled->compares ? queries->n : 0;
    struct prompt *prompts = make_prompts(r, limits, n_apart + documents->n, params);
    pooled->n_queries = (uint32_t)queries->n;
    pooled->n_scores = pooled->n_shown = (uint32_t)documents->n;
    for (size_t i = 0; prompts && i < n_apart; i++)
        set_text(&prompts[i], item_of(r, queries, i));
    for (size_t i = 0; prompts && i < documents->n && wefti_api_json_ok(r); i++) {
        const json_t *text = item_of(r, documents, i);
        struct prompt *prompt = &prompts[n_apart + i];
        if (pooled->compares) {
            set_text(prompt, text);
            continue;
        }
        set_text(prompt, item_of(r, queries, queries->n == 1 ? 0 : i));
        prompt->second = json_string_value(text);
        prompt->second_len = json_string_length(text);
    }
}

/* What a question is put before the model with: of these alone. */
static void read_instruction(const struct reader *r, struct params *params) {
    const json_t *value = wefti_api_json_get(r, "instruction");
    if (!value) return;
    if (!json_is_string(value)) wefti_api_json_wrong_type(r, "instruction", "a string", value);
    if (json_is_string(value) && !params->pooled.judges)
        weft_api_error_set(r->error, 400, "instruction", "unsupported_parameter",
                           "'instruction' is for models that judge by one, which this is not");
    params->pooled.instruction = json_string_value(value);
    params->pooled.instruction_len = json_string_length(value);
}

void wefti_api_params_read_texts(const struct reader *r, const struct weft_api_limits *limits,
                                 struct params *params) {
    begin(r, params);
    want_scores(r, limits, &params->pooled);
    if (!wefti_api_json_ok(r)) return;
    struct texts first = read_list(r, "text_1", limits), second = read_list(r, "text_2", limits);
    if (wefti_api_json_ok(r) && first.n > 1 && first.n != second.n)
        weft_api_error_set(r->error, 400, "text_2", NULL,
                           "'text_1' holds %zu texts and 'text_2' %zu: it must be one, or as many",
                           first.n, second.n);
    if (!wefti_api_json_ok(r)) return;
    pair_up(r, limits, &first, &second, params);
    read_instruction(r, params);
    for (uint32_t i = 0; params->pooled.compares && i < params->n_prompts; i++)
        params->prompts[i].before = usual_prompt(limits->purpose.model);
}

/* Where vectors are compared, queries and documents have the prompts that the model has for them. */
static void set_prompts(const struct weft_model_pooling *model, struct params *params) {
    const struct weft_model_prompt *query = find_type(model, "query");
    const struct weft_model_prompt *document = find_type(model, "document");
    for (uint32_t i = 0; i < params->n_prompts; i++)
        params->prompts[i].before = i < params->pooled.n_queries ? query : document;
}

static void keep_documents(const struct reader *r, struct params *params) {
    for (uint32_t i = params->n_prompts - params->pooled.n_scores; i < params->n_prompts; i++) {
        struct prompt *prompt = &params->prompts[i];
        const char *text = prompt->second ? prompt->second : prompt->text;
        prompt->n_document = prompt->second ? prompt->second_len : prompt->text_len;
        prompt->document = malloc(prompt->n_document + 1);
        if (!prompt->document) {
            weft_api_error_set(r->error, 500, NULL, NULL, "out of memory");
            return;
        }
        if (prompt->n_document > 0) memcpy(prompt->document, text, prompt->n_document);
    }
}

void wefti_api_params_read_documents(const struct reader *r, const struct weft_api_limits *limits,
                                     struct params *params) {
    static const struct refused_field refused[] = {{"rank_fields", IF_EMPTY},
                                                   {"max_chunks_per_doc", IF_NULL},
                                                   {"max_tokens_per_doc", IF_NULL},
                                                   {NULL, IF_NULL}};
    bool returns_documents = false;
    int64_t top_n = 0;
    begin(r, params);
    wefti_api_params_refuse(r, refused);
    want_scores(r, limits, &params->pooled);
    if (!wefti_api_json_ok(r)) return;
    struct texts query = read_list(r, "query", limits);
    if (json_is_array(query.value)) wefti_api_json_wrong_type(r, "query", "a string", query.value);
    struct texts documents = read_list(r, "documents", limits);
    if (!wefti_api_json_ok(r)) return;
    pair_up(r, limits, &query, &documents, params);
    read_instruction(r, params);
    if (params->pooled.compares) set_prompts(limits->purpose.model, params);
    if (wefti_api_json_get_int(r, "top_n", 1, INT32_MAX, &top_n) && top_n < params->pooled.n_shown)
        params->pooled.n_shown = (uint32_t)top_n;
    wefti_api_json_get_bool(r, "return_documents", &returns_documents);
    if (returns_documents && wefti_api_json_ok(r)) keep_documents(r, params);
}
