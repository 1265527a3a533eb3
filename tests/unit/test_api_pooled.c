/* Requests for vectors and scores: what the scheduler is asked for, what becomes of its values, and how
 * the answers look. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "unit/api_fixture.h"

#define KIND(name) (&wefti_api_kind_##name)

static char label_a[] = "a", label_b[] = "b";
static char *labels[] = {label_a, label_b};
static struct weft_model_pooling model;

static void serve(enum weft_model_task task, uint32_t n_labels) {
    model = (struct weft_model_pooling){.task = task,
                                        .kind = WEFT_POOLING_MEAN,
                                        .normalises = true,
                                        .activation = WEFT_MODEL_SIGMOID,
                                        .n_labels = n_labels,
                                        .labels = labels,
                                        .default_prompt = UINT32_MAX};
    if (n_labels > 1) model.activation = WEFT_MODEL_SOFTMAX;
    api.limits.shape = (struct weft_pooling_shape){.n_hidden = 3, .n_labels = n_labels};
    api.limits.purpose = (struct weft_api_purpose){.task = task, .model = &model};
}

static int tear_down_purpose(void **state) {
    api.limits.shape = (struct weft_pooling_shape){0};
    api.limits.purpose = (struct weft_api_purpose){0};
    return tear_down(state);
}

static void put_values(const struct sent *sent, uint32_t n, const float *values) {
    put_accepted(sent);
    put_event(&(struct weft_event){.request_id = sent->id,
                                   .attempt = sent->attempt,
                                   .end = WEFT_END_LENGTH,
                                   .n_values = n,
                                   .values = values});
}

/* Those of the last n submissions, in order. */
static void put_all(uint32_t n, uint32_t n_values, const float *values) {
    struct sent sent[8];
    assert_in_range(n, 1, 8);
    memcpy(sent, &paper.sent[paper.n_sent - n], n * sizeof *sent);
    for (uint32_t i = 0; i < n; i++)
        put_accepted(&sent[i]);
    for (uint32_t i = 0; i < n; i++)
        put_values(&sent[i], n_values, values + (size_t)i * n_values);
}

static void expect_error(const weft_api_kind *kind, const char *json, const char *words) {
    weft_api_call *call = begin_kind(kind, json);
    assert_int_equal(call->state, WEFT_API_CALL_FAILED);
    if (!strstr(call->error.message, words)) fail_msg("%s", call->error.message);
    weft_api_call_drop(call);
}

static double number(const json_t *list, size_t i) {
    return json_number_value(json_array_get(list, i));
}

static void vectors_are_normalised_and_cut(void **state) {
    (void)state;
    static const float values[] = {3, 4, 12, 0, 0, 0};
    serve(WEFT_MODEL_EMBEDS, 0);
    weft_api_call *call =
        begin_kind(KIND(embeddings), "{\"input\": [\"a\", \"b\"], \"dimensions\": 2}");
    assert_int_equal(last_sent()->pooling.kind, WEFT_POOLING_MEAN);
    assert_int_equal(last_sent()->n_choices, 1);
    put_all(2, 3, values);
    assert_int_equal(call->state, WEFT_API_CALL_DONE);
    for (size_t budget = 1; budget < 400; budget += 57) {
        json_t *body = body_of(call, budget);
        const json_t *data = json_object_get(body, "data");
        const json_t *first = json_object_get(json_array_get(data, 0), "embedding");
        const json_t *second = json_object_get(json_array_get(data, 1), "embedding");
        assert_int_equal(json_array_size(first), 2);
        assert_true(fabs(number(first, 0) - 0.6) < 1e-7 && fabs(number(first, 1) - 0.8) < 1e-7);
        assert_true(number(second, 0) == 0 && number(second, 1) == 0); /* no direction, no fault */
        json_decref(body);
    }
    weft_api_call_drop(call);
}

static void base64_is_the_bytes_however_it_is_cut(void **state) {
    (void)state;
    static const float values[] = {1, -2, 0.5f};
    serve(WEFT_MODEL_EMBEDS, 0);
    weft_api_call *call =
        begin_kind(KIND(embeddings),
                   "{\"input\": \"a\", \"encoding_format\": \"base64\", \"normalize\": false}");
    put_all(1, 3, values);
    for (size_t budget = 1; budget < 300; budget += 37) {
        json_t *body = body_of(call, budget);
        const json_t *data = json_array_get(json_object_get(body, "data"), 0);
        assert_string_equal(text_of(data, "embedding"), "AACAPwAAAMAAAAA/");
        json_decref(body);
    }
    weft_api_call_drop(call);
}

/* A lost scheduler: the texts that are not through are asked for again, the others are not. */
static void values_come_once_over_a_loss(void **state) {
    (void)state;
    static const float values[] = {0, 0, 1};
    serve(WEFT_MODEL_EMBEDS, 0);
    weft_api_call *call = begin_kind(KIND(embeddings), "{\"input\": [\"a\", \"b\"]}");
    struct sent first = paper.sent[paper.n_sent - 2], second = paper.sent[paper.n_sent - 1];
    put_accepted(&first);
    put_accepted(&second);
    put_values(&first, 3, values);
    uint32_t n_sent = paper.n_sent;
    put_link(false);
    put_link(true);
    put_snapshot(true);
    for (uint32_t i = n_sent; i < paper.n_sent; i++)
        assert_true(paper.sent[i].type != WEFT_MSG_SUBMIT || paper.sent[i].id == second.id);
    assert_true(last_sent()->id == second.id && last_sent()->resume);
    assert_int_equal(last_sent()->pooling.kind, WEFT_POOLING_MEAN);
    put_values(&second, 3, values); /* of the attempt before: nobody waits for it */
    assert_int_equal(call->state, WEFT_API_CALL_RUNNING);
    struct sent again = *last_sent();
    put_values(&again, 3, values);
    assert_int_equal(call->state, WEFT_API_CALL_DONE);
    weft_api_call_drop(call);
}

static void fail_with(uint32_t n_values, float value, const char *words) {
    const float values[] = {1, value, 1, 1};
    weft_api_call *call = begin_kind(KIND(embeddings), "{\"input\": \"a\"}");
    struct sent sent = *last_sent();
    put_values(&sent, n_values, values);
    assert_int_equal(call->state, WEFT_API_CALL_FAILED);
    assert_int_equal(call->error.status, 500);
    assert_non_null(strstr(call->error.message, words));
    weft_api_call_drop(call);
}

static void values_that_cannot_be_are_an_error(void **state) {
    (void)state;
    serve(WEFT_MODEL_EMBEDS, 0);
    fail_with(2, 1, "other values");
    fail_with(0, 1, "other values");
    fail_with(3, NAN, "not a number");
    fail_with(3, INFINITY, "not a number");
}

static void results_come_best_first_and_equal_ones_in_order(void **state) {
    (void)state;
    static const float logits[] = {0, 2, 0, -1};
    static const uint32_t order[] = {1, 0, 2};
    serve(WEFT_MODEL_CLASSIFIES, 1);
    weft_api_call *call = begin_kind(
        KIND(rerank), "{\"query\": \"q\", \"documents\": [\"a\", {\"text\": \"b\"}, \"c\", \"d\"], "
                      "\"top_n\": 3, \"return_documents\": true}");
    assert_int_equal(last_sent()->pooling.kind, WEFT_POOLING_CLASSIFY);
    put_all(4, 1, logits);
    json_t *body = body_of(call, 50);
    const json_t *results = json_object_get(body, "results");
    assert_int_equal(json_array_size(results), 3);
    for (size_t i = 0; i < 3; i++) {
        const json_t *result = json_array_get(results, i);
        double want = 1 / (1 + exp(-(double)logits[order[i]]));
        assert_int_equal(json_integer_value(json_object_get(result, "index")), order[i]);
        assert_true(fabs(json_number_value(json_object_get(result, "relevance_score")) - want) <
                    1e-12);
        const char text[] = {(char)('a' + order[i]), 0};
        assert_string_equal(text_of(json_object_get(result, "document"), "text"), text);
    }
    json_decref(body);
    weft_api_call_drop(call);
}

/* (1, 1, 2) of length 1 is a little longer in f32. */
static void no_cosine_is_over_1(void **state) {
    (void)state;
    static const float vectors[] = {1, 1, 2, 1, 1, 2};
    serve(WEFT_MODEL_EMBEDS, 0);
    weft_api_call *call = begin_kind(KIND(score), "{\"text_1\": \"q\", \"text_2\": \"q\"}");
    put_all(2, 3, vectors);
    json_t *body = body_of(call, 1000);
    const json_t *data = json_array_get(json_object_get(body, "data"), 0);
    assert_true(json_number_value(json_object_get(data, "score")) == 1);
    json_decref(body);
    weft_api_call_drop(call);
}

static void a_judge_is_asked_for_two_tokens(void **state) {
    (void)state;
    static const float logits[] = {1, 3};
    serve(WEFT_MODEL_GENERATES, 0);
    api.limits.purpose.judges = true;
    api.limits.purpose.yes_id = 11;
    api.limits.purpose.no_id = 12;
    weft_api_call *call = begin_kind(KIND(score), "{\"text_1\": \"q\", \"text_2\": \"d\"}");
    assert_int_equal(last_sent()->pooling.kind, WEFT_POOLING_TOKENS);
    assert_int_equal(last_sent()->pooling.ids[0], 11);
    put_all(1, 2, logits);
    json_t *body = body_of(call, 1000);
    const json_t *data = json_array_get(json_object_get(body, "data"), 0);
    assert_true(fabs(json_number_value(json_object_get(data, "score")) - 1 / (1 + exp(2))) < 1e-12);
    json_decref(body);
    weft_api_call_drop(call);
}

static void classes_are_probabilities_with_names(void **state) {
    (void)state;
    static const float logits[] = {1, 2};
    serve(WEFT_MODEL_CLASSIFIES, 2);
    weft_api_call *call = begin_kind(KIND(classify), "{\"input\": \"x\"}");
    put_all(1, 2, logits);
    json_t *body = body_of(call, 1000);
    const json_t *data = json_array_get(json_object_get(body, "data"), 0);
    const json_t *probs = json_object_get(data, "probs");
    assert_string_equal(text_of(data, "label"), "b");
    assert_true(fabs(number(probs, 0) + number(probs, 1) - 1) < 1e-6);
    assert_true(fabs(number(probs, 1) - 1 / (1 + exp(-1.0))) < 1e-6);
    json_decref(body);
    weft_api_call_drop(call);
    expect_error(KIND(rerank), "{\"query\": \"q\", \"documents\": [\"a\"]}", "no scores of pairs");
}

static void a_task_is_the_models_or_refused(void **state) {
    (void)state;
    static const float vector[] = {3, 3, 3};
    serve(WEFT_MODEL_EMBEDS, 0);
    expect_error(KIND(embeddings), "{\"input\": [[]]}", "list of token ids must not be empty");
    expect_error(KIND(pooling), "{\"input\": \"a\", \"task\": \"nope\"}", "'task'");
    expect_error(KIND(pooling), "{\"input\": \"a\", \"task\": 5}", "'task'");
    expect_error(KIND(pooling), "{\"input\": \"a\", \"task\": \"classify\"}", "'task'");
    weft_api_call *call = begin_kind(KIND(pooling), "{\"input\": \"a\", \"task\": \"embed\"}");
    put_all(1, 3, vector);
    json_decref(body_of(call, 1000));
    weft_api_call_drop(call);
}

static void each_model_does_what_it_is_there_for(void **state) {
    (void)state;
    expect_error(KIND(embeddings), "{\"input\": \"a\"}", "--runner pooling");
    expect_error(KIND(rerank), "{\"query\": \"q\", \"documents\": [\"a\"]}", "generates text");
    serve(WEFT_MODEL_EMBEDS, 0);
    expect_error(CALL_COMPLETION, "{\"prompt\": \"a\"}", "embeds texts and generates no text");
    expect_error(KIND(classify), "{\"input\": \"a\"}", "embeds texts and has no classes");
    serve(WEFT_MODEL_CLASSIFIES, 1);
    expect_error(CALL_COMPLETION, "{\"prompt\": \"a\"}", "classifies texts and generates no text");
    expect_error(KIND(embeddings), "{\"input\": \"a\"}", "classifies texts and has no embeddings");
}

int main(void) {
#undef CASE
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down_purpose)
    const struct CMUnitTest tests[] = {
        CASE(vectors_are_normalised_and_cut),
        CASE(base64_is_the_bytes_however_it_is_cut),
        CASE(values_come_once_over_a_loss),
        CASE(values_that_cannot_be_are_an_error),
        CASE(results_come_best_first_and_equal_ones_in_order),
        CASE(no_cosine_is_over_1),
        CASE(a_judge_is_asked_for_two_tokens),
        CASE(classes_are_probabilities_with_names),
        CASE(a_task_is_the_models_or_refused),
        CASE(each_model_does_what_it_is_there_for),
    };
    return cmocka_run_group_tests_name("api_pooled", tests, NULL, NULL);
}
