/* Lines of a batch, and answers to them: read as each of them. What an answer says it says again
 * once it is written anew. */
#include "fuzz/fuzz.h"

#include <string.h>

#include "api/batch.h"
#include "base/check.h"

static void read_line(struct weft_str text) {
    struct weft_api_batch_line line;
    struct weft_api_batch_fault fault = {0};
    bool is_fair = weft_api_batch_line_read(text, NULL, SIZE_MAX, &line, &fault);
    WEFT_ASSERT(is_fair || (fault.code && fault.message[0]));
    WEFT_ASSERT(!is_fair || (line.kind && line.body && line.body[0] == '{'));
    weft_api_batch_line_fini(&line);
}

static void read_answer(struct weft_str text) {
    struct weft_api_batch_answered read, again;
    struct weft_buf out;
    if (!weft_api_batch_answer_read(text, &read)) return;
    WEFT_ASSERT(weft_api_batch_begins_answer(text));
    const struct weft_api_batch_answer answer = {.batch_id = "batch_0",
                                                 .custom_id = {read.custom_id, read.n_custom_id},
                                                 .status = read.status,
                                                 .code = "c",
                                                 .message = "m",
                                                 .request_id = "r",
                                                 .body = {"{}", 2}};
    weft_buf_init(&out, 1 << 16);
    weft_api_batch_write_answer(&answer, &out);
    WEFT_ASSERT(weft_api_batch_answer_read((struct weft_str){out.data, out.len}, &again));
    WEFT_ASSERT(again.status == read.status && again.n_custom_id == read.n_custom_id);
    WEFT_ASSERT(memcmp(again.custom_id, read.custom_id, read.n_custom_id) == 0);
    weft_buf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    struct weft_str rest = {(const char *)bytes, n}, line;
    while (weft_api_batch_next_line(&rest, &line)) {
        read_line(line);
        read_answer(line);
    }
    return 0;
}

void weft_fuzz_seeds(void (*add)(const void *bytes, size_t n)) {
    static const char *const seeds[] = {
        "{\"custom_id\":\"a\\u0000\",\"method\":\"POST\",\"url\":\"/v1/completions\","
        "\"body\":{\"prompt\":\"x\",\"stream\":false}}\n \n{\"custom_id\":\"b\"}",
        "{\"id\":\"batch_req_0123456789abcdef0000beef\",\"custom_id\":\"\\\"\\n\",\"response\":"
        "{\"status_code\":200,\"request_id\":\"r\",\"body\":{\"a\":1}},\"error\":null}\n",
        "{\"id\":\"batch_req_00\",\"custom_id\":\"c\",\"response\":null,\"error\":{\"code\":"
        "\"batch_expired\",\"message\":\"too \\\"late\\\"\"}}\n",
    };
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++)
        add(seeds[i], strlen(seeds[i]));
}
