/* Chat templates: compiled from hostile source, then rendered. */
#include "fuzz/fuzz.h"

#include <string.h>

#include "base/check.h"
#include "text/text_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static const struct weft_chat_message messages[] = {
        {"system", "Be brief.", 6, 9}, {"user", " Hi {{ x }} ", 4, 12}, {"assistant", "", 9, 0}};
    weft_tokenizer tok = {.bos_id = WEFTI_NO_ID, .eos_token_id = WEFTI_NO_ID};
    struct weft_errmsg why = {""};
    weft_chat *chat;
    weft_err err = weft_chat_new((const char *)bytes, n, &tok, &chat, &why);
    WEFT_ASSERT((err == WEFT_OK) == (chat != NULL));
    WEFT_ASSERT(!err || err == WEFT_E_NOMEM || why.text[0]);
    for (size_t k = 0; chat && k <= 3; k++) {
        struct weft_buf out;
        weft_buf_init(&out, 4096);
        err = weft_chat_render(chat, messages, k, k % 2 == 0, &out, &why);
        WEFT_ASSERT(err == WEFT_OK || err == WEFT_E_INVAL || err == WEFT_E_TOOBIG);
        WEFT_ASSERT(out.len <= 4096);
        weft_buf_fini(&out);
    }
    weft_chat_free(chat);
    return 0;
}

void weft_fuzz_seeds(void (*add)(const void *bytes, size_t n)) {
    static const char *const seeds[] = {
        "{{ bos_token }}{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + "
        "message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}"
        "{{ '<|im_start|>assistant\\n' }}{% endif %}",
        "{% set x = 'a' ~ 1 %}{%- if x is defined and not x == 'b' -%} {{ x | trim }} {% elif 0 %}"
        "{% else %}{# c #}{% endif +%}\n{{ x if x else 'y' }}",
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('order') }}{% endif %}{{ loop.first }}{{ loop.last }}{% endfor %}",
        "{{ messages[0].content | length }}{{ messages[-1]['role'] }}{{ tools is none }}",
        "{% set a = 'xxxxxxxxxxxxxxxx' %}{% for m in messages %}{% set a = a + a %}{{ a }}"
        "{% endfor %}{{ a ~ none ~ true }}",
    };
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++)
        add(seeds[i], strlen(seeds[i]));
}
