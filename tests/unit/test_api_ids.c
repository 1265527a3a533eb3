/* The ids of prompts and outputs: which of them are kept, and which are told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit/api_fixture.h"

/* ---------------------------------------------------------------------------- what is kept --- */

/* A completion's prompt of ids 1 to 1000, of a context of 1024, with `fields`: its ids are then `n`, from
 * `first` on. */
static void expect_kept(const char *fields, uint32_t first, size_t n) {
    struct weft_buf json;
    weft_buf_init(&json, 1 << 16);
    weft_buf_add_str(&json, "{\"prompt\":[1");
    for (uint32_t id = 2; id <= 1000; id++)
        weft_buf_printf(&json, ",%u", id);
    weft_buf_printf(&json, "],%s}", fields);
    weft_api_call *call = begin(weft_buf_cstr(&json));
    weft_buf_fini(&json);
    const struct prompt *prompt = &call->params.prompts[0];
    assert_int_equal(call->error.status, 0);
    assert_int_equal(prompt->n_ids, n);
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(prompt->ids[i], first + i);
    weft_api_call_drop(call);
}

static void a_prompt_is_cut_to_as_many_ids_as_were_asked_for(void **state) {
    (void)state;
    assert_int_equal(api.limits.max_model_len, 1024);
    expect_kept("\"truncate_prompt_tokens\":null", 1, 1000);
    expect_kept("\"truncate_prompt_tokens\":10", 991, 10);
    expect_kept("\"truncate_prompt_tokens\":10,\"truncation_side\":\"left\"", 991, 10);
    expect_kept("\"truncate_prompt_tokens\":10,\"truncation_side\":\"right\"", 1, 10);
    expect_kept("\"truncate_prompt_tokens\":1", 1000, 1);
    expect_kept("\"truncate_prompt_tokens\":1024", 1, 1000);
}

static void or_to_what_the_context_has_beside_the_output(void **state) {
    (void)state;
    expect_kept("\"truncate_prompt_tokens\":-1", 1, 1000); /* and 16 of output */
    expect_kept("\"truncate_prompt_tokens\":-1,\"max_tokens\":24", 1, 1000);
    expect_kept("\"truncate_prompt_tokens\":-1,\"max_tokens\":124", 101, 900);
    expect_kept("\"truncate_prompt_tokens\":-1,\"max_tokens\":1023", 1000, 1);
    weft_api_call *call = begin("{\"prompt\":[1,2],\"truncate_prompt_tokens\":-1,"
                                "\"max_tokens\":1024}");
    assert_int_equal(call->error.status, 400);
    assert_string_equal(call->error.code, "context_length_exceeded");
    weft_api_call_drop(call);
}

static void a_cut_prompt_is_echoed_as_its_ids_read(void **state) {
    (void)state;
    weft_api_call *call = begin("{\"prompt\":\"Once upon a time\",\"echo\":true,"
                                "\"truncate_prompt_tokens\":2,\"max_tokens\":1}");
    struct sent submit = *last_sent();
    assert_int_equal(submit.n_prompt, 2);
    put_accepted(&submit);
    uint32_t ids[32];
    assert_int_equal(encode(" was", ids), 1);
    put_token(&submit, 0, 0, ids[0], WEFT_END_LENGTH);
    json_t *body = body_of(call, 1 << 16);
    assert_string_equal(text_of(choice_of(body, 0), "text"), " a time was");
    json_decref(body);
    weft_api_call_drop(call);
}

/* ---------------------------------------------------------------------------- what is told --- */

static void expect_ids(const json_t *list, uint32_t first, size_t n) {
    assert_int_equal(json_array_size(list), n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(json_integer_value(json_array_get(list, i)), first + i);
}

/* A completion of ids 1 to 40 and of 50, of two choices with ids 100 and 101, 200 and 201, ... */
static weft_api_call *two_prompts(const char *fields) {
    struct weft_buf json;
    weft_buf_init(&json, 1 << 16);
    weft_buf_add_str(&json, "{\"prompt\":[[1");
    for (uint32_t id = 2; id <= 40; id++)
        weft_buf_printf(&json, ",%u", id);
    weft_buf_printf(&json, "],[50]],\"n\":2,\"max_tokens\":2,\"return_token_ids\":true%s}", fields);
    weft_api_call *call = begin(weft_buf_cstr(&json));
    weft_buf_fini(&json);
    assert_int_equal(call->error.status, 0);
    struct sent submits[2] = {paper.sent[paper.n_sent - 2], paper.sent[paper.n_sent - 1]};
    for (uint32_t i = 0; i < 2; i++)
        put_accepted(&submits[i]);
    for (uint32_t i = 0; i < 4; i++) {
        put_token(&submits[i / 2], i % 2, 0, 100 * (i + 1), WEFT_END_NONE);
        put_token(&submits[i / 2], i % 2, 1, 100 * (i + 1) + 1, WEFT_END_LENGTH);
    }
    return call;
}

static void completions_tell_them_in_each_choice(void **state) {
    (void)state;
    weft_api_call *call = two_prompts("");
    json_t *body = body_of(call, 1);
    for (uint32_t i = 0; i < 4; i++) {
        const json_t *prompt = json_object_get(choice_of(body, i), "prompt_token_ids");
        expect_ids(prompt, i < 2 ? 1 : 50, i < 2 ? 40 : 1);
        expect_ids(json_object_get(choice_of(body, i), "token_ids"), 100 * (i + 1), 2);
    }
    assert_null(json_object_get(body, "prompt_token_ids"));
    json_decref(body);
    weft_api_call_drop(call);
}

/* The chunks of a whole stream, rendered `budget` bytes at a time. */
static json_t *chunks_of(weft_api_call *call, size_t budget, size_t n_most) {
    struct weft_buf out;
    json_t *list = json_array();
    weft_buf_init(&out, 1 << 20);
    enum weft_api_render status;
    do {
        size_t before = out.len;
        status = weft_api_render_stream(call, &out, budget);
        assert_true(out.len - before < budget + n_most); /* one chunk, without its prompt */
    } while (status == WEFT_API_RENDER_MORE);
    assert_int_equal(status, WEFT_API_RENDER_DONE);
    for (const char *at = weft_buf_cstr(&out); (at = strstr(at, "data: {")); at++) {
        json_t *chunk = json_loadb(at + 6, (size_t)(strstr(at, "\n\n") - at) - 6, 0, NULL);
        assert_non_null(chunk);
        json_array_append_new(list, chunk);
    }
    weft_buf_fini(&out);
    return list;
}

/* Appends what the chunks of choice `index` have under `key`; the first one has it first. */
static json_t *joined(const json_t *chunks, json_int_t index, const char *key) {
    json_t *all = json_array(), *chunk;
    size_t i;
    json_array_foreach(chunks, i, chunk) {
        const json_t *choice = choice_of(chunk, 0);
        if (json_integer_value(json_object_get(choice, "index")) != index) continue;
        json_t *ids = json_object_get(choice, key);
        if (!ids) ids = json_object_get(chunk, key);
        if (ids) json_array_extend(all, ids);
    }
    return all;
}

static void streams_tell_the_prompt_first_and_in_pieces(void **state) {
    (void)state;
    for (size_t budget = 1; budget < 5000; budget *= 4) {
        weft_api_call *call = two_prompts(",\"stream\":true");
        json_t *chunks = chunks_of(call, budget, 400);
        for (uint32_t i = 0; i < 4; i++) {
            json_t *prompt = joined(chunks, i, "prompt_token_ids");
            json_t *output = joined(chunks, i, "token_ids");
            expect_ids(prompt, i < 2 ? 1 : 50, i < 2 ? 40 : 1);
            expect_ids(output, 100 * (i + 1), 2);
            json_decref(prompt);
            json_decref(output);
        }
        assert_non_null(
            json_object_get(choice_of(json_array_get(chunks, 0), 0), "prompt_token_ids"));
        weft_api_call_drop(call);
        json_decref(chunks);
    }
}

static void a_chat_tells_its_prompt_beside_the_choices(void **state) {
    (void)state;
    static const char template[] = "{% for m in messages %}{{ m.content }}{% endfor %}";
    struct weft_errmsg why;
    uint32_t ids[32], n_ids = encode("Once upon a time", ids);
    assert_int_equal(weft_api_set_template(&api, strdup(template), "auto", &why), WEFT_OK);
    static const char *const streams[] = {"false", "true"};
    for (int i = 0; i < 2; i++) {
        char json[256];
        (void)snprintf(json, sizeof json,
                       "{\"messages\":[{\"role\":\"user\",\"content\":\"Once upon a time\"}],"
                       "\"max_tokens\":1,\"return_token_ids\":true,\"stream\":%s}",
                       streams[i]);
        weft_api_call *call = begin_kind(CALL_CHAT, json);
        struct sent submit = *last_sent();
        put_accepted(&submit);
        put_token(&submit, 0, 0, 100, WEFT_END_LENGTH);
        json_t *list = i == 0 ? json_pack("[o]", body_of(call, 1)) : chunks_of(call, 1, 400);
        const json_t *first = json_array_get(list, 0);
        const json_t *last = json_array_get(list, json_array_size(list) - 1);
        const json_t *prompt = json_object_get(first, "prompt_token_ids");
        assert_int_equal(json_array_size(prompt), n_ids);
        for (uint32_t k = 0; k < n_ids; k++)
            assert_int_equal(json_integer_value(json_array_get(prompt, k)), ids[k]);
        expect_ids(json_object_get(choice_of(last, 0), "token_ids"), 100, 1);
        json_decref(list);
        weft_api_call_drop(call);
    }
    weft_tmpl_free(api.chat);
    free(api.chat_source);
    api.chat = NULL;
    api.chat_source = NULL;
}

/* -------------------------------------------------------------------------- what is repeated --- */

/* What a chat of these messages answers, in one piece and as a stream in pieces of `budget`, if the
 * model writes " was". The caller frees it. */
static char *echoed(const char *messages, const char *fields, size_t budget) {
    struct weft_buf json, text;
    uint32_t ids[32];
    weft_buf_init(&json, 1 << 20);
    weft_buf_init(&text, 1 << 20);
    weft_buf_printf(&json, "{\"messages\":[%s],\"echo\":true,\"max_tokens\":1%s}", messages,
                    fields);
    weft_api_call *call = begin_kind(CALL_CHAT, weft_buf_cstr(&json));
    assert_int_equal(call->error.status, 0);
    struct sent submit = *last_sent();
    put_accepted(&submit);
    assert_int_equal(encode(" was", ids), 1);
    put_token(&submit, 0, 0, ids[0], WEFT_END_LENGTH);
    json_t *list = budget ? chunks_of(call, budget, 17000) : json_pack("[o]", body_of(call, 1)),
           *answer;
    size_t i;
    json_array_foreach(list, i, answer) {
        const json_t *choice = choice_of(answer, 0);
        const char *content =
            text_of(json_object_get(choice, budget ? "delta" : "message"), "content");
        if (content) weft_buf_add_str(&text, content);
    }
    char *copy = strdup(weft_buf_cstr(&text));
    json_decref(list);
    weft_api_call_drop(call);
    weft_buf_fini(&json);
    weft_buf_fini(&text);
    return copy;
}

static void expect_echoed(const char *messages, const char *fields, const char *want) {
    for (size_t budget = 0; budget <= 64; budget += 64) {
        char more[128];
        (void)snprintf(more, sizeof more, "%s%s", fields, budget ? ",\"stream\":true" : "");
        char *text = echoed(messages, more, budget);
        assert_string_equal(text, want);
        free(text);
    }
}

static void a_chat_repeats_what_its_answer_goes_on_with(void **state) {
    (void)state;
    static const char template[] = "{% for m in messages %}{{ m.content }}{% endfor %}";
    static const char asked[] = "{\"role\":\"user\",\"content\":\"Who?\"}";
    static const char begun[] = "{\"role\":\"user\",\"content\":\"Who?\"},"
                                "{\"role\":\"assistant\",\"content\":\"It\"}";
    struct weft_errmsg why;
    assert_int_equal(weft_api_set_template(&api, strdup(template), "auto", &why), WEFT_OK);
    expect_echoed(asked, "", " was"); /* the assistant has said nothing yet */
    expect_echoed(begun, "", "It was");
    expect_echoed(asked, ",\"add_generation_prompt\":false", "Who? was");
    expect_echoed(begun, ",\"add_generation_prompt\":false,\"continue_final_message\":true",
                  "It was");
    expect_echoed("{\"role\":\"user\",\"content\":\"Who?\"},{\"role\":\"assistant\"}", "", " was");
    expect_echoed(begun, ",\"truncate_prompt_tokens\":1", "It was");
    struct weft_buf json, want; /* a long one */
    weft_buf_init(&json, 1 << 20);
    weft_buf_init(&want, 1 << 20);
    for (int i = 0; i < 12000; i++)
        weft_buf_add_str(&want, "\u00e9 ");
    weft_buf_printf(&json, "{\"role\":\"assistant\",\"content\":\"%s\"}", weft_buf_cstr(&want));
    weft_buf_add_str(&want, " was");
    for (size_t budget = 0; budget <= 20000; budget += 20000) {
        const char *fields = budget ? ",\"truncate_prompt_tokens\":4,\"stream\":true"
                                    : ",\"truncate_prompt_tokens\":4";
        char *text = echoed(weft_buf_cstr(&json), fields, budget);
        assert_string_equal(text, weft_buf_cstr(&want));
        free(text);
    }
    weft_buf_fini(&json);
    weft_buf_fini(&want);
    weft_tmpl_free(api.chat);
    free(api.chat_source);
    api.chat = NULL;
    api.chat_source = NULL;
}

/* ------------------------------------------------------------------------ what is filled in --- */

static void a_suffix_takes_a_model_that_fills_in(void **state) {
    (void)state;
    static const char *const rows[][3] = {
        {"{\"prompt\":\"a\",\"suffix\":\"b\"}", "suffix", "no tokens for filling in"},
        {"{\"prompt\":\"a\",\"suffix\":3}", "suffix", "string"},
        {"{\"prompt\":\"a\",\"suffix\":\"b\",\"echo\":true}", "echo", "'suffix'"},
        {"{\"prompt\":\"a\",\"suffix\":\"b\",\"truncate_prompt_tokens\":4}",
         "truncate_prompt_tokens", "'suffix'"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        weft_api_call *call = begin(rows[i][0]);
        assert_int_equal(call->error.status, 400);
        assert_string_equal(call->error.param, rows[i][1]);
        assert_non_null(strstr(call->error.message, rows[i][2]));
        weft_api_call_drop(call);
    }
    weft_api_call *call = begin("{\"prompt\":\"a\",\"suffix\":\"\",\"echo\":true}");
    assert_int_equal(call->error.status, 0);
    weft_api_call_drop(call);
    static const char *const infills[][2] = {
        {"{\"input_prefix\":\"a\",\"input_suffix\":\"\"}",
         "input_suffix"}, /* there, all the same */
        {"{\"input_prefix\":\"a\"}", "input_suffix"},
        {"{\"input_suffix\":\"a\"}", "input_prefix"},
        {"{\"input_prefix\":\"a\",\"input_suffix\":\"b\",\"prompt\":[1]}", "prompt"},
        {"{\"input_prefix\":\"a\",\"input_suffix\":\"b\",\"input_extra\":[{}]}", "input_extra"},
        {"{\"input_prefix\":\"a\",\"input_suffix\":\"b\",\"suffix\":\"c\"}", "suffix"},
    };
    for (size_t i = 0; i < sizeof infills / sizeof infills[0]; i++) {
        call = begin_kind(&wefti_api_kind_llama_infill, infills[i][0]);
        assert_int_equal(call->error.status, 400);
        assert_string_equal(call->error.param, infills[i][1]);
        weft_api_call_drop(call);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(a_prompt_is_cut_to_as_many_ids_as_were_asked_for),
        CASE(or_to_what_the_context_has_beside_the_output),
        CASE(a_cut_prompt_is_echoed_as_its_ids_read),
        CASE(completions_tell_them_in_each_choice),
        CASE(streams_tell_the_prompt_first_and_in_pieces),
        CASE(a_chat_tells_its_prompt_beside_the_choices),
        CASE(a_chat_repeats_what_its_answer_goes_on_with),
        CASE(a_suffix_takes_a_model_that_fills_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
