/* Request bodies: the first byte says which kind, the rest is JSON or MessagePack, taken all the
 * way to token ids with the bundled model's tokenizer. */
#include "fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/check.h"
#include "codec/msgpack.h"
#include "inside/api/call/call_internal.h"
#include "inside/api/kinds/kind.h"

static struct weft_api_state *make_state(void) {
    static struct weft_api_state api;
    static const char *const model_names[] = {"m", "also"};
    struct weft_errmsg why;
    char path[1024], *template;
    const char *root = getenv("WEFT_SOURCE_DIR");
    (void)snprintf(path, sizeof path, "%s/models/fable-6m", root ? root : ".");
    api.held_max = 1u << 30;
    api.small_bytes = WEFT_API_SMALL_BYTES;
    api.limits = (struct weft_api_limits){.model_name = "m",
                                          .model_names = model_names,
                                          .n_model_names = 2,
                                          .n_vocab = 4096,
                                          .max_model_len = 1024,
                                          .max_logprobs = 20,
                                          .json_blanks = 1,
                                          .json_digits = 64,
                                          .max_prompts = WEFT_API_PROMPTS_MAX,
                                          .max_logprob_bytes = 1 << 20,
                                          .logs_unknown_fields = true};
    WEFT_ASSERT(weft_tok_open(path, &api.tok, &why) == WEFT_OK);
    WEFT_ASSERT(weft_tok_gen_defaults(path, &api.limits.defaults, &why) == WEFT_OK);
    WEFT_ASSERT(weft_tmpl_find(path, &template, &why) == WEFT_OK && template);
    WEFT_ASSERT(weft_api_set_template(&api, template, "auto", &why) == WEFT_OK);
    api.limits.eos = weft_tok_eos(api.tok, &api.limits.n_eos);
    return &api;
}

/* Models are there for several things; the body's last byte, if it is a blank, says for which. */
static void wish_for(struct weft_api_state *api, uint8_t byte) {
    static char query[] = "query", before[] = "Query: ", yes[] = "yes";
    static struct weft_model_prompt prompts[] = {{query, before}};
    static char *labels[] = {yes};
    static struct weft_model_pooling model = {.kind = WEFT_POOLING_LAST,
                                              .normalises = true,
                                              .n_tokens_max = 64,
                                              .n_prompts = 1,
                                              .n_labels = 1,
                                              .prompts = prompts,
                                              .default_prompt = UINT32_MAX,
                                              .labels = labels};
    enum weft_model_task task = byte == '\t'   ? WEFT_MODEL_EMBEDS
                                : byte == '\n' ? WEFT_MODEL_CLASSIFIES
                                               : WEFT_MODEL_GENERATES;
    api->limits.shape = (struct weft_pooling_shape){.n_hidden = 320, .n_labels = 1};
    api->limits.purpose = (struct weft_api_purpose){
        .task = task, .model = &model, .judges = byte == '\r', .yes_id = 5, .no_id = 6};
}

static void on_wake(weft_api_call *call) {
    (void)call;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static struct weft_api_state *api;
    if (!api) api = make_state();
    if (n < 2) return 0;
    struct weft_buf body;
    weft_buf_init(&body, 1u << 22);
    weft_buf_add(&body, bytes + 1, n - 1);
    WEFT_ASSERT(weft_api_hold(api, weft_api_cost(api, body.len)));
    uint32_t n_kinds = 0;
    while (wefti_api_kinds[n_kinds])
        n_kinds++;
    WEFT_ASSERT(n_kinds > 0);
    /* Between them bit 2: MessagePack; bits 4 and 5 make digits and letters of them. */
    uint32_t kind =
        (bytes[0] & 3) | (bytes[0] & 8) >> 1 | (bytes[0] & 0x40) >> 3 | (bytes[0] & 0x80) >> 3;
    wish_for(api, bytes[n - 1]);
    const struct weft_api_call_request request = {.kind = wefti_api_kinds[kind % n_kinds],
                                                  .body = &body,
                                                  .request_id = "fuzz",
                                                  .wake = on_wake,
                                                  .now_us = 1};
    weft_api_call *call = weft_api_call_new(api, &request);
    WEFT_ASSERT(call);
    if (bytes[0] & 4) { /* the connection measures MessagePack before it makes a call */
        struct weft_mp_scan scan = {0};
        struct weft_errmsg why;
        if (weft_msgpack_scan(&scan, call->body.data, call->body.len, 1u << 22, &why) !=
            WEFT_MP_OK) {
            weft_api_call_drop(call);
            return 0;
        }
        call->is_msgpack = true;
    }
    weft_api_call_prepare(call);
    bool is_generation = call->kind->generates;
    struct weft_errmsg why;
    if (!call->error.status && is_generation && call->params.n_prompts > 0) {
        WEFT_ASSERT(weft_sampling_check(&call->params.sampling, 4096, &why) == WEFT_OK);
        WEFT_ASSERT(call->params.n_prompts >= 1 && call->params.prompts[0].n_ids >= 1);
        for (uint32_t i = 0; call->kind->pools && i < call->params.n_prompts; i++) {
            const struct prompt *prompt = &call->params.prompts[i];
            struct weft_pooling pooling = call->params.pooled.pooling;
            pooling.n_first = prompt->n_first;
            WEFT_ASSERT(weft_pooling_check(&pooling, &call->params.sampling,
                                           (uint32_t)prompt->n_ids, 4096, &why) == WEFT_OK);
        }
    }
    weft_api_call_drop(call);
    WEFT_ASSERT(api->held_bytes == 0);
    return 0;
}

void weft_fuzz_seeds(void (*add)(const void *bytes, size_t n)) {
    static const char *const seeds[] = {
        "H{\"input\":[\"a\",\"\"],\"dimensions\":8,\"encoding_format\":\"base64\",\"prompt_name\":"
        "\"query\"}\t",
        "H{\"input\":[[1,2],[3]],\"truncate_prompt_tokens\":1,\"normalize\":false}\t",
        "I{\"input\":\"a\",\"input_type\":\"search_query\",\"add_special_tokens\":false}\t",
        "J{\"input\":[\"a\",\"b\"],\"encoding_format\":\"float\"}\n",
        "K{\"text_1\":\"a\",\"text_2\":[\"b\",\"c\"]}\n",
        "\x80{\"text_1\":[\"a\",\"b\"],\"text_2\":[\"b\",\"c\"]}\t",
        "\x81{\"query\":\"a\",\"documents\":[\"b\",{\"text\":\"c\"}],\"top_n\":1,\"return_"
        "documents\":"
        "true}\t",
        "\x82{\"query\":\"a\",\"documents\":[\"b\"],\"instruction\":\"judge\"}\r",
        "\xc1{\"content\":[\"a\",\"b\"],\"embd_normalize\":-1}\t",
        "\xc3{\"input\":\"a\",\"truncate\":true,\"options\":{},\"model\":\"m:latest\"}\t",
        "0{\"prompt\":\"Once\",\"max_tokens\":5,\"temperature\":0.5,\"stop\":[\"a\",\"b\"],\"n\":"
        "2}",
        "0{\"prompt\":\"a\",\"samplers\":[\"top_k\",\"typ_p\",\"temperature\",\"adaptive_p\"],"
        "\"sampler_variant\":\"llama.cpp\",\"repeat_last_n\":9,\"dry_multiplier\":0.8,"
        "\"dry_sequence_breakers\":[\"\\n\",\":\"],\"adaptive_target\":0.5,\"xtc_probability\":1}",
        "0{\"prompt\":[[1,2],[3]],\"logprobs\":2,\"echo\":true,\"logit_bias\":{\"5\":-1,\"6\":2}}",
        "0{\"prompt\":[\"a\",\"b\"],\"stream\":true,\"stream_options\":{\"include_usage\":true},"
        "\"seed\":-7,\"stop_token_ids\":[3],\"min_tokens\":1,\"top_k\":4,\"min_p\":0.1}",
        "1{\"messages\":[{\"role\":\"system\",\"content\":\"x\"},{\"role\":\"user\",\"content\":"
        "[{\"type\":\"text\",\"text\":\"hi\"}]}],\"logprobs\":true,\"top_logprobs\":3}",
        "8{\"prompt\":\"hello\",\"return_token_strs\":true}",
        "8{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"add_generation_prompt\":false}",
        "9{\"tokens\":[1,2,3]}",
        ":{\"prompt\":\"a\",\"n_predict\":-1,\"repeat_penalty\":1.1,\"repeat_last_n\":-1,\"n_"
        "probs\":2,"
        "\"logit_bias\":[[5,1.5],[6,false]],\"samplers\":null,\"min_keep\":0}",
        "A{\"prompt\":\"a\",\"system\":\"b\",\"raw\":false,\"options\":{\"num_predict\":5,\"seed\":"
        "1,"
        "\"stop\":[\"x\"],\"repeat_penalty\":1.1,\"num_ctx\":2048},\"keep_alive\":\"5m\"}",
        "B{\"model\":\"m:latest\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"stream\":"
        "false,"
        "\"logprobs\":true,\"top_logprobs\":2}",
        "C{\"model\":\"m\"}",
        "2{\"max_tokens\":9,\"system\":[{\"type\":\"text\",\"text\":\"s\"}],\"messages\":[{"
        "\"role\":\"user\",\"content\":"
        "\"a\"},{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\",\"thinking\":\"t\","
        "\"signature\":\"\"},"
        "{\"type\":\"tool_use\",\"id\":\"1\",\"name\":\"f\",\"input\":{\"a\":1}}]},{\"role\":"
        "\"user\",\"content\":["
        "{\"type\":\"tool_result\",\"tool_use_id\":\"1\",\"content\":[{\"type\":\"text\",\"text\":"
        "\"r\"}]},{\"type\":"
        "\"text\",\"text\":\"b\"}]}],\"tools\":[{\"name\":\"f\",\"input_schema\":{\"type\":"
        "\"object\"}},{\"type\":"
        "\"bash_1\",\"name\":\"bash\"}],\"tool_choice\":{\"type\":\"any\",\"disable_parallel_tool_"
        "use\":true}}",
        "2{\"max_tokens\":9,\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":"
        "\"user\",\"content\":\"u\"},"
        "{\"role\":\"assistant\",\"content\":\"a\"}],\"thinking\":{\"type\":\"enabled\",\"budget_"
        "tokens\":5},"
        "\"output_config\":{\"effort\":\"low\",\"format\":{\"type\":\"json_schema\",\"schema\":{}}}"
        ",\"metadata\":"
        "{\"user_id\":\"u\"},\"stop_sequences\":[\"x\"]}",
        "3{\"messages\":[{\"role\":\"user\",\"content\":\"u\"}]}",
        "@{\"input\":\"a\",\"instructions\":\"b\",\"tools\":[{\"type\":\"function\",\"name\":\"f\","
        "\"parameters\":{}},{\"type\":\"web_search\"}],\"tool_choice\":{\"type\":\"allowed_tools\","
        "\"mode\":\"required\",\"tools\":[{\"type\":\"function\",\"name\":\"f\"}]},\"truncation\":"
        "\"auto\"}",
        "@{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\"}]},"
        "{\"type\":\"reasoning\",\"summary\":[{\"text\":\"b\"}]},{\"type\":\"function_call\","
        "\"call_id\":\"c\",\"name\":\"f\",\"arguments\":\"{}\"},{\"type\":\"function_call_output\","
        "\"call_id\":\"c\",\"output\":[{\"type\":\"input_text\",\"text\":\"d\"}]},"
        "{\"type\":\"custom_tool_call\",\"call_id\":\"e\",\"name\":\"g\",\"input\":\"h\"},"
        "{\"type\":\"custom_tool_call_output\",\"call_id\":\"e\",\"output\":{}}],\"text\":"
        "{\"format\":{\"type\":\"json_schema\",\"schema\":{}}},\"reasoning\":{\"effort\":\"low\"},"
        "\"include\":[\"message.output_text.logprobs\"],\"top_logprobs\":2,\"store\":true}",
        "4\x82\xa6prompt\xa2hi\xaamax_tokens\t",
        "5\x81\xa8messages\x91\x82\xa4role\xa4user\xa7"
        "content\xa2hi",
    };
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++)
        add(seeds[i], strlen(seeds[i]));
}
