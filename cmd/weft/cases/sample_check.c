#include "sample_check.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"

enum form { NUMBER, WHOLE, SHARE, TEXT, TOKENS, BIASES, LIST };
static const char *const forms[] = {
    [NUMBER] = "a number that fits into a float",
    [WHOLE] = "a whole number",
    [SHARE] = "a number from 0 to 1",
    [TEXT] = "a text",
    [TOKENS] = "a list of token ids",
    [BIASES] = "an object of token ids with a number each, none twice",
    [LIST] = "a list",
};

/* What an object says; `of`: a step's name, or which list of the file it stands in. */
static const struct rule {
    const char *of, *name;
    enum form form;
    bool may_lack;
} rules[] = {
    {"temperature", "t", NUMBER, false},
    {"dynamic_temperature", "t", NUMBER, false},
    {"dynamic_temperature", "delta", NUMBER, false},
    {"dynamic_temperature", "exponent", NUMBER, false},
    {"top_k", "k", WHOLE, false},
    {"top_p", "p", NUMBER, false},
    {"min_p", "m", NUMBER, false},
    {"typical", "mass", NUMBER, false},
    {"top_n_sigma", "n", NUMBER, false},
    {"tail_free", "z", NUMBER, false},
    {"xtc", "threshold", NUMBER, false},
    {"xtc", "probability", NUMBER, false},
    {"xtc", "draw", SHARE, false},
    {"penalties", "prompt", TOKENS, false},
    {"penalties", "output", TOKENS, false},
    {"penalties", "repetition", NUMBER, false},
    {"penalties", "frequency", NUMBER, true},
    {"penalties", "presence", NUMBER, true},
    {"penalties", "last_n", WHOLE, true},
    {"dry", "history", TOKENS, false},
    {"dry", "multiplier", NUMBER, false},
    {"dry", "base", NUMBER, false},
    {"dry", "allowed_length", WHOLE, false},
    {"dry", "last_n", WHOLE, true},
    {"dry", "breakers", TOKENS, true},
    {"logit_bias", "bias", BIASES, false},
    {"cases", "vector", TEXT, false},
    {"cases", "variant", TEXT, true},
    {"cases", "name", TEXT, true},
    {"cases", "expected", TEXT, true},
    {"cases", "steps", LIST, false},
    {"mirostat", "sampler", TEXT, false},
    {"mirostat", "variant", TEXT, true},
    {"mirostat", "tau", NUMBER, false},
    {"mirostat", "eta", NUMBER, false},
    {"mirostat", "mu_start", NUMBER, false},
    {"mirostat", "steps", LIST, false},
    {"a step of mirostat", "vector", TEXT, false},
    {"a step of mirostat", "draw", SHARE, false},
    {"contrastive", "vector", TEXT, false},
    {"contrastive", "alpha", SHARE, false},
};
#define N_RULES (sizeof rules / sizeof rules[0])

static bool is_number(const json_t *value) {
    return json_is_number(value) && fabs(json_number_value(value)) <= (double)FLT_MAX;
}

static bool are_tokens(const json_t *value) {
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *item = json_array_get(value, i);
        if (!json_is_integer(item) || json_integer_value(item) < 0 ||
            json_integer_value(item) >= WEFT_VOCAB_MAX)
            return false;
    }
    return json_is_array(value);
}

/* A number written in one way alone, so that an object has none twice. */
static bool is_token(const char *text) {
    size_t len = strspn(text, "0123456789");
    bool is_plain = len > 0 && len < 9 && text[len] == '\0' && (text[0] != '0' || len == 1);
    return is_plain && strtoul(text, NULL, 10) < WEFT_VOCAB_MAX;
}

static bool are_biases(const json_t *value) {
    const char *key;
    json_t *bias;
    json_object_foreach((json_t *)(uintptr_t)value, key, bias) {
        if (!is_token(key) || !is_number(bias)) return false;
    }
    return json_is_object(value);
}

static bool has_form(const json_t *value, enum form form) {
    switch (form) {
    case NUMBER:
        return is_number(value);
    case WHOLE:
        return json_is_integer(value);
    case SHARE:
        return json_is_number(value) && json_number_value(value) >= 0 &&
               json_number_value(value) <= 1;
    case TEXT:
        return json_is_string(value);
    case TOKENS:
        return are_tokens(value);
    case BIASES:
        return are_biases(value);
    case LIST:
        return json_is_array(value);
    }
    return false;
}

static weft_err check_object(const json_t *object, const char *of, struct weft_errmsg *why) {
    if (!json_is_object(object))
        return weft_err_set(why, WEFT_E_INVAL, "%s: there is no object with what it says", of);
    for (size_t i = 0; i < N_RULES; i++) {
        if (strcmp(rules[i].of, of) != 0) continue;
        const json_t *value = json_object_get(object, rules[i].name);
        if (!value && rules[i].may_lack) continue;
        if (!has_form(value, rules[i].form))
            return weft_err_set(why, WEFT_E_INVAL, "%s: \"%s\" must be %s", of, rules[i].name,
                                forms[rules[i].form]);
    }
    return WEFT_OK;
}

static weft_err check_steps(const json_t *test, struct weft_errmsg *why) {
    const json_t *steps = json_object_get(test, "steps");
    weft_err err = WEFT_OK;
    for (size_t i = 0; i < json_array_size(steps) && !err; i++) {
        const json_t *step = json_array_get(steps, i);
        const char *name = json_string_value(json_array_get(step, 0));
        if (!name || json_array_size(step) > 2)
            return weft_err_set(why, WEFT_E_INVAL,
                                "step %zu must be a list of a name and an object", i);
        for (size_t k = 0; k < N_RULES && !err; k++) { /* of other names there is no step */
            if (strcmp(rules[k].of, name) != 0) continue;
            err = check_object(json_array_get(step, 1), name, why);
            break;
        }
    }
    return err;
}

static weft_err check_chain(const json_t *chain, struct weft_errmsg *why) {
    const char *sampler = json_string_value(json_object_get(chain, "sampler"));
    const json_t *steps = json_object_get(chain, "steps");
    weft_err err = WEFT_OK;
    if (strcmp(sampler, "mirostat1") != 0 && strcmp(sampler, "mirostat2") != 0)
        return weft_err_set(why, WEFT_E_INVAL,
                            "\"sampler\" must be \"mirostat1\" or \"mirostat2\"");
    for (size_t i = 0; i < json_array_size(steps) && !err; i++)
        err = check_object(json_array_get(steps, i), "a step of mirostat", why);
    return err;
}

static weft_err check_list(const json_t *root, const char *of,
                           weft_err (*check_more)(const json_t *, struct weft_errmsg *),
                           struct weft_errmsg *why) {
    const json_t *list = json_object_get(root, of);
    if (list && !json_is_array(list))
        return weft_err_set(why, WEFT_E_INVAL, "\"%s\" must be a list", of);
    for (size_t i = 0; i < json_array_size(list); i++) {
        struct weft_errmsg detail = {""};
        weft_err err = check_object(json_array_get(list, i), of, &detail);
        if (!err && check_more) err = check_more(json_array_get(list, i), &detail);
        if (err) return weft_err_set(why, err, "%s[%zu]: %s", of, i, detail.text);
    }
    return WEFT_OK;
}

weft_err weft_sample_check(const json_t *root, struct weft_errmsg *why) {
    if (!json_is_object(root))
        return weft_err_set(why, WEFT_E_INVAL, "the file of cases holds no object");
    weft_err err = check_list(root, "cases", check_steps, why);
    if (!err) err = check_list(root, "mirostat", check_chain, why);
    return err ? err : check_list(root, "contrastive", NULL, why);
}
