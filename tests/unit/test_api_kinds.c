/* What endpoints answer in their own way: llama.cpp's, those about tokens, chat's template. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit/api_fixture.h"

/* All of a call's answer, stream or not, cut into pieces of about so many bytes. */
static char *rendered(weft_api_call *call, size_t budget) {
    struct weft_buf out;
    weft_buf_init(&out, 1 << 20);
    assert_int_equal(call->state, WEFT_API_CALL_DONE);
    while ((call->params.stream
                ? weft_api_render_stream(call, &out, budget)
                : weft_api_render_body(call, &out, budget)) == WEFT_API_RENDER_MORE) {
    }
    char *copy = strdup(weft_buf_cstr(&out));
    weft_buf_fini(&out);
    return copy;
}

/* The tokens of a text, 1 ms apart, the first 10 ms after the request came; each with its own
 * log-probability, and with `end` the last one. */
static void put_text(const char *text, enum weft_end end) {
    static const uint32_t best = 7;
    static const float value = -0.5f;
    uint32_t ids[32], n = encode(text, ids);
    struct sent submit = *last_sent();
    put_accepted(&submit);
    now_us += 9000;
    for (uint32_t i = 0; i < n; i++) {
        struct weft_event event = {.request_id = submit.id,
                                   .attempt = submit.attempt,
                                   .sampled = true,
                                   .token = ids[i],
                                   .output_idx = i,
                                   .end = i + 1 == n ? end : WEFT_END_NONE,
                                   .has_logprobs = true,
                                   .logprobs = {-1.5f, 2, 1, &best, &value}};
        now_us += 1000;
        put_event(&event);
    }
}

static double timing_of(const json_t *body, const char *key) {
    return json_number_value(json_object_get(json_object_get(body, "timings"), key));
}

static void llamas_answer_has_its_fields_however_it_is_cut(void **state) {
    (void)state;
    static const char json[] = "{\"prompt\":\"Once\",\"n_predict\":30,\"seed\":3,\"n_probs\":1,"
                               "\"return_tokens\":true,\"stop\":[\"x\",\"e wa\"],"
                               "\"logit_bias\":[[9,1.5],[4,false],[9,1]]}";
    weft_api_call *call = begin_kind(CALL_LLAMA, json);
    uint32_t ids[32], n = encode(" upon there wa", ids), n_prompt = last_sent()->n_prompt;
    put_text(" upon there was a", WEFT_END_LENGTH);
    char *text = rendered(call, 1 << 16);
    for (size_t budget = 1; budget < 100; budget += 7) {
        wefti_api_render_rewind(call);
        char *again = rendered(call, budget);
        assert_string_equal(again, text);
        free(again);
    }
    json_t *body = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    const json_t *settings = json_object_get(body, "generation_settings");
    const json_t *probs = json_object_get(body, "completion_probabilities");
    assert_string_equal(text_of(body, "content"), " upon ther");
    assert_string_equal(text_of(body, "stop_type"), "word");
    assert_string_equal(text_of(body, "stopping_word"), "e wa");
    assert_string_equal(text_of(body, "prompt"), "<|begin_of_text|>Once");
    assert_string_equal(text_of(body, "model"), "m");
    assert_true(json_is_true(json_object_get(body, "stop")));
    assert_true(json_is_false(json_object_get(body, "truncated")));
    uint64_t n_used = (uint64_t)json_integer_value(json_object_get(body, "tokens_predicted"));
    assert_true(n_used >= n - 1 && n_used <= n);
    assert_int_equal(json_array_size(json_object_get(body, "tokens")), n_used);
    assert_int_equal(json_array_size(probs), n_used);
    const json_t *prob = json_array_get(probs, 0);
    assert_int_equal(json_integer_value(json_object_get(prob, "id")), ids[0]);
    assert_true(json_number_value(json_object_get(prob, "logprob")) == -1.5);
    prob = json_array_get(json_object_get(prob, "top_logprobs"), 0);
    assert_int_equal(json_integer_value(json_object_get(prob, "id")), 7);
    assert_true(json_number_value(json_object_get(prob, "logprob")) == -0.5);
    assert_int_equal(json_integer_value(json_object_get(body, "tokens_evaluated")), n_prompt);
    assert_int_equal(json_integer_value(json_object_get(settings, "seed")), 3);
    assert_int_equal(json_integer_value(json_object_get(settings, "top_k")), 40);
    assert_int_equal(json_array_size(json_object_get(settings, "stop")), 2);
    const json_t *bias = json_object_get(settings, "logit_bias");
    assert_int_equal(json_array_size(bias), 2);
    assert_true(json_is_false(json_object_get(json_array_get(bias, 0), "bias")));
    assert_true(json_number_value(json_object_get(json_array_get(bias, 1), "bias")) == 2.5);
    assert_true(timing_of(body, "prompt_ms") == 10 && timing_of(body, "predicted_n") == n_used);
    assert_true(timing_of(body, "predicted_ms") == (double)n_used - 1);
    json_decref(body);
    free(text);
    weft_api_call_drop(call);
}

/* Wherever an answer has a place for them. */
static void tokens_found_in_the_cache_are_told(void **state) {
    (void)state;
    static const struct {
        const weft_api_kind *kind;
        const char *json, *want;
    } rows[] = {
        {CALL_COMPLETION, "{\"prompt\":[1,2,3,4]}",
         "\"prompt_tokens_details\":{\"cached_tokens\":3}"},
        {CALL_COMPLETION,
         "{\"prompt\":[1,2,3,4],\"stream\":true,\"stream_options\":{\"include_usage\":true}}",
         "\"prompt_tokens_details\":{\"cached_tokens\":3}"},
        {CALL_COMPLETION,
         "{\"prompt\":[1,2,3,4],\"stream\":true,\"stream_options\":{\"continuous_usage_stats\":"
         "true}}",
         "\"prompt_tokens_details\":{\"cached_tokens\":3}"},
        {CALL_LLAMA, "{\"prompt\":[1,2,3,4]}",
         "\"tokens_cached\":3,\"timings\":{\"cache_n\":3,\"prompt_n\":1,"},
        {CALL_LLAMA, "{\"prompt\":[1,2,3,4],\"stream\":true}",
         "\"tokens_cached\":3,\"timings\":{\"cache_n\":3,\"prompt_n\":1,"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        weft_api_call *call = begin_kind(rows[i].kind, rows[i].json);
        struct sent submit = *last_sent();
        put_accepted(&submit);
        struct weft_event event = {.request_id = submit.id,
                                   .attempt = submit.attempt,
                                   .sampled = true,
                                   .token = 40,
                                   .end = WEFT_END_LENGTH,
                                   .n_prompt_cached = 3};
        put_event(&event);
        char *text = rendered(call, 1 << 16);
        if (!strstr(text, rows[i].want)) fail_msg("%s lacks %s", text, rows[i].want);
        free(text);
        weft_api_call_drop(call);
    }
}

static void llamas_stream_names_all_tokens_and_ends_with_the_facts(void **state) {
    (void)state;
    static const char *const probs[] = {"", ",\"n_probs\":1"};
    static const char text[] = " a\u4f60 king";
    uint32_t ids[32], n = encode(text, ids);
    for (uint32_t how = 0; how < 12; how++) {
        static char *whole;
        char json[128];
        (void)snprintf(json, sizeof json,
                       "{\"prompt\":\"Once\",\"stream\":true,\"n_predict\":%u,\"seed\":3%s}", n,
                       probs[how / 6]);
        weft_api_call *call = begin_kind(CALL_LLAMA, json);
        put_text(text, WEFT_END_LENGTH);
        char *stream = rendered(call, how % 6 ? how % 6 * 13 : 1 << 16);
        weft_api_call_drop(call);
        if (how % 6 > 0) {
            assert_string_equal(stream, whole);
            free(stream);
            if (how % 6 == 5) free(whole);
            continue;
        }
        whole = stream;
        char seen[64] = "";
        uint32_t n_seen = 0, n_probs = 0;
        bool is_over = false;
        for (char *at = stream; *at; at = strstr(at, "\n\n") + 2) {
            assert_memory_equal(at, "data: ", 6);
            assert_false(is_over);
            json_t *event = json_loads(at + 6, JSON_DISABLE_EOF_CHECK, NULL);
            const json_t *tokens = json_object_get(event, "tokens");
            (void)strncat(seen, text_of(event, "content"), sizeof seen - strlen(seen) - 1);
            for (size_t i = 0; i < json_array_size(tokens); i++)
                assert_int_equal(json_integer_value(json_array_get(tokens, i)), ids[n_seen++]);
            n_probs +=
                (uint32_t)json_array_size(json_object_get(event, "completion_probabilities"));
            assert_int_equal(json_integer_value(json_object_get(event, "tokens_predicted")),
                             n_seen);
            is_over = json_is_true(json_object_get(event, "stop"));
            if (is_over) assert_string_equal(text_of(event, "stop_type"), "limit");
            json_decref(event);
        }
        assert_true(is_over);
        assert_string_equal(seen, text);
        assert_int_equal(n_seen, n);
        assert_int_equal(n_probs, how ? n : 0);
    }
}

static void a_seed_that_llamas_endpoint_draws_has_32_bits(void **state) {
    (void)state;
    static const struct {
        const char *fields;
        uint64_t least, most;
    } cases[] = {{"", 0, UINT32_MAX},
                 {",\"seed\":-1", 0, UINT32_MAX},
                 {",\"seed\":7331156703129319947", 7331156703129319947, 7331156703129319947}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char json[96];
        (void)snprintf(json, sizeof json, "{\"prompt\":\"Once\"%s}", cases[i].fields);
        weft_api_call *call = begin_kind(CALL_LLAMA, json);
        uint64_t seed = last_sent()->seed;
        put_text(" upon", WEFT_END_LENGTH);
        char *text = rendered(call, 1 << 16);
        json_t *body = json_loads(text, 0, NULL);
        const json_t *settings = json_object_get(body, "generation_settings");
        assert_true(seed >= cases[i].least && seed <= cases[i].most);
        assert_true((uint64_t)json_integer_value(json_object_get(settings, "seed")) == seed);
        json_decref(body);
        free(text);
        weft_api_call_drop(call);
    }
}

static bool ends_an_event(const struct weft_buf *out) {
    return out->len == 0 || (out->len > 1 && memcmp(out->data + out->len - 2, "\n\n", 2) == 0);
}

static void a_stream_knows_when_an_event_is_sent_in_part(void **state) {
    (void)state;
    struct weft_buf out;
    enum weft_api_render status;
    uint32_t n_partial = 0;
    weft_buf_init(&out, 1 << 20);
    weft_api_call *call =
        begin_kind(CALL_LLAMA, "{\"prompt\":\"Once\",\"stream\":true,\"n_predict\":30}");
    assert_true(weft_api_call_is_between_events(call));
    put_text(" upon there", WEFT_END_LENGTH);
    do {
        status = weft_api_render_stream(call, &out, 13);
        assert_int_equal(weft_api_call_is_between_events(call), ends_an_event(&out));
        n_partial += !ends_an_event(&out);
    } while (status == WEFT_API_RENDER_MORE);
    assert_int_equal(status, WEFT_API_RENDER_DONE);
    assert_true(n_partial > 5);
    weft_buf_fini(&out);
    weft_api_call_drop(call);
}

static char *answer_of(weft_api_call *call, size_t budget) {
    struct weft_buf out;
    weft_buf_init(&out, 1 << 20);
    wefti_api_render_rewind(call);
    while (weft_api_render_body(call, &out, budget) == WEFT_API_RENDER_MORE) {
    }
    char *copy = strdup(weft_buf_cstr(&out));
    weft_buf_fini(&out);
    return copy;
}

static void answers_about_tokens_are_the_same_in_pieces_of_any_size(void **state) {
    (void)state;
    static const struct {
        const weft_api_kind *kind;
        const char *json, *want;
    } cases[] = {
        {CALL_TOKENIZE, "{\"prompt\":\"Once upon a time\",\"return_token_strs\":true}",
         "{\"count\":6,\"max_model_len\":1024,\"tokens\":[4091,46,1259,572,258,574],\"token_strs\":"
         "[\"<|begin_of_text|>\",\"O\",\"nce\",\" upon\",\" a\",\" time\"]}"},
        {CALL_TOKENIZE, "{\"prompt\":\"Once\",\"add_special_tokens\":false}",
         "{\"count\":2,\"max_model_len\":1024,\"tokens\":[46,1259],\"token_strs\":null}"},
        {CALL_TOKENIZE, "{\"prompt\":\"\",\"add_special_tokens\":false,\"return_token_strs\":true}",
         "{\"count\":0,\"max_model_len\":1024,\"tokens\":[],\"token_strs\":[]}"},
        {CALL_DETOKENIZE, "{\"tokens\":[4091,46,1259,572,258,574]}",
         "{\"prompt\":\"<|begin_of_text|>Once upon a time\","
         "\"content\":\"<|begin_of_text|>Once upon a time\"}"},
        {CALL_DETOKENIZE, "{\"tokens\":[]}", "{\"prompt\":\"\",\"content\":\"\"}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        weft_api_call *call = in_hand(cases[i].json, cases[i].kind);
        weft_api_call_prepare(call);
        weft_api_call_start(call, now_us);
        assert_int_equal(call->state, WEFT_API_CALL_DONE);
        for (size_t budget = 1; budget < 200; budget++) {
            char *got = answer_of(call, budget);
            assert_string_equal(got, cases[i].want);
            free(got);
        }
        weft_api_call_drop(call);
    }
}

static void drop_template(void) {
    weft_tmpl_free(api.chat);
    free(api.chat_source);
    api.chat = NULL;
    api.chat_source = NULL;
}

static void what_a_template_raises_is_the_400s_message(void **state) {
    (void)state;
    struct weft_errmsg why;
    static const char template[] = "{% for m in messages %}{% if m.role == 'user' %}"
                                   "{{ raise_exception('Roles must \"alternate\": ' ~ m.role) }}"
                                   "{% endif %}{% endfor %}";
    if (weft_api_set_template(&api, strdup(template), "auto", &why)) fail_msg("%s", why.text);
    weft_api_call *call = begin_chat("");
    assert_int_equal(call->error.status, 400);
    assert_string_equal(call->error.message,
                        "Roles must \"alternate\": user (chat template, line 1)");
    weft_api_call_drop(call);
    drop_template();
}

/* The same text from the one object and from the lines of the stream, however they are cut; where a
 * model has no chat template the prompt is used as it is. */
static void ollamas_answer_is_one_object_or_lines_that_end_with_its_facts(void **state) {
    (void)state;
    static const char *const streams[] = {"false", "true"};
    for (uint32_t how = 0; how < 2; how++) {
        char json[160], first[80];
        (void)snprintf(json, sizeof json,
                       "{\"model\":\"m:latest\",\"prompt\":\"Once\",\"stream\":%s,\"options\":{"
                       "\"seed\":3,\"num_predict\":30,\"stop\":\"e wa\"},\"keep_alive\":0}",
                       streams[how]);
        weft_api_call *call = begin_kind(&wefti_api_kind_ollama_generate, json);
        put_text(" upon there wa", WEFT_END_LENGTH);
        char *text = rendered(call, 1 << 16);
        for (size_t budget = 1; !how && budget < 100; budget += 7) {
            wefti_api_render_rewind(call);
            char *again = rendered(call, budget);
            assert_string_equal(again, text);
            free(again);
        }
        const char *last =
            how ? strstr(text, "{\"model\":\"m\",\"created_at\":\"1970-01-01T00:00:01Z\","
                               "\"response\":\"\",\"done\":true")
                : text;
        assert_non_null(last);
        json_t *body = json_loads(last, JSON_REJECT_DUPLICATES, NULL);
        assert_string_equal(text_of(body, "response"), how ? "" : " upon ther");
        assert_string_equal(text_of(body, "done_reason"), "stop");
        assert_int_equal(json_integer_value(json_object_get(body, "eval_count")),
                         call->choices[0].n_tokens);
        assert_int_equal(json_integer_value(json_object_get(body, "prompt_eval_count")),
                         call->params.prompts[0].n_ids);
        assert_int_equal(json_integer_value(json_object_get(body, "prompt_eval_duration")),
                         10000000);
        json_decref(body);
        (void)snprintf(first, sizeof first, "\"response\":\" %s\",\"done\":false}\n", "upon");
        assert_int_equal(strstr(text, first) != NULL, how);
        assert_null(strstr(text, "data:"));
        free(text);
        weft_api_call_drop(call);
    }
}

static void ollamas_chat_has_messages_and_log_probabilities(void **state) {
    (void)state;
    struct weft_errmsg why;
    static const char source[] = "{% for m in messages %}{{ m.content }}{% endfor %}";
    assert_int_equal(weft_api_set_template(&api, strdup(source), "auto", &why), WEFT_OK);
    weft_api_call *call = begin_kind(&wefti_api_kind_ollama_chat,
                                     "{\"messages\":[{\"role\":\"user\",\"content\":\"Once\"}],"
                                     "\"stream\":false,\"logprobs\":true,\"top_logprobs\":1}");
    put_text(" upon", WEFT_END_STOP);
    json_t *body = body_of(call, 5);
    const json_t *message = json_object_get(body, "message");
    assert_string_equal(text_of(message, "role"), "assistant");
    const json_t *lp = json_array_get(json_object_get(body, "logprobs"), 0);
    assert_true(json_number_value(json_object_get(lp, "logprob")) == -1.5);
    assert_int_equal(json_array_size(json_object_get(lp, "top_logprobs")), 1);
    json_decref(body);
    weft_api_call_drop(call);
    drop_template();
}

static void ollamas_request_without_a_prompt_asks_for_the_model_alone(void **state) {
    (void)state;
    static const struct {
        const weft_api_kind *kind;
        const char *json, *want;
    } cases[] = {
        {&wefti_api_kind_ollama_generate, "{\"stream\":false}", "\"response\":\"\""},
        {&wefti_api_kind_ollama_generate, "{\"prompt\":\"\",\"keep_alive\":-1}",
         "\"response\":\"\""},
        {&wefti_api_kind_ollama_chat, "{\"messages\":[]}",
         "\"message\":{\"role\":\"assistant\",\"content\":\"\"}"},
    };
    uint32_t n_sent = paper.n_sent;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        weft_api_call *call = begin_kind(cases[i].kind, cases[i].json);
        char *text = rendered(call, 1 << 16);
        assert_non_null(strstr(text, cases[i].want));
        assert_non_null(strstr(text, "\"done\":true,\"done_reason\":\"load\"}"));
        free(text);
        weft_api_call_drop(call);
    }
    assert_int_equal(paper.n_sent, n_sent);
}

static void a_stream_of_lines_ends_with_an_error_in_ollamas_shape(void **state) {
    (void)state;
    weft_api_call *call = begin_kind(&wefti_api_kind_ollama_generate, "{\"prompt\":\"Once\"}");
    struct sent submit = *last_sent();
    put_accepted(&submit);
    put_token(&submit, 0, 0, 40, WEFT_END_NONE);
    put_token(&submit, 0, 1, 40, WEFT_END_DEADLINE);
    struct weft_buf out;
    weft_buf_init(&out, 1 << 16);
    while (weft_api_render_stream(call, &out, 100) == WEFT_API_RENDER_MORE) {
    }
    assert_non_null(strstr(weft_buf_cstr(&out),
                           "}\n{\"error\":\"the request took too long\",\"request_id\":\""));
    weft_buf_fini(&out);
    weft_api_call_drop(call);
}

static void ollamas_show_knows_the_context(void **state) {
    (void)state;
    weft_api_call *call = begin_kind(&wefti_api_kind_ollama_show, "{\"name\":\"m:latest\"}");
    json_t *body = body_of(call, 1);
    const json_t *info = json_object_get(body, "model_info");
    assert_int_equal(json_object_size(info), 3);
    assert_string_equal(text_of(body, "template"), "");
    json_decref(body);
    weft_api_call_drop(call);
    call = begin_kind(&wefti_api_kind_ollama_show, "{\"name\":\"other\"}");
    assert_int_equal(call->error.status, 404);
    weft_api_call_drop(call);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(llamas_answer_has_its_fields_however_it_is_cut),
        CASE(tokens_found_in_the_cache_are_told),
        CASE(llamas_stream_names_all_tokens_and_ends_with_the_facts),
        CASE(a_seed_that_llamas_endpoint_draws_has_32_bits),
        CASE(a_stream_knows_when_an_event_is_sent_in_part),
        CASE(answers_about_tokens_are_the_same_in_pieces_of_any_size),
        CASE(what_a_template_raises_is_the_400s_message),
        CASE(ollamas_answer_is_one_object_or_lines_that_end_with_its_facts),
        CASE(ollamas_chat_has_messages_and_log_probabilities),
        CASE(ollamas_request_without_a_prompt_asks_for_the_model_alone),
        CASE(a_stream_of_lines_ends_with_an_error_in_ollamas_shape),
        CASE(ollamas_show_knows_the_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
