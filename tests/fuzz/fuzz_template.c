/* Chat templates: compiled from hostile source, then rendered. */
#include "fuzz/fuzz.h"

#include <jansson.h>
#include <string.h>

#include "base/check.h"
#include "base/log.h"
#include "template/template.h"

/* Nested data to loop over, index and write, as a request with tools brings. */
static const char variables[] =
    "{\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\",\"content\":"
    "\" Hi {{ x }} "
    "\\u00e9\\n\"},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"function\":"
    "{\"name\":\"f\",\"arguments\":{\"x\":1,\"y\":[2.5,true]}}}]}],\"tools\":[{\"function\":{"
    "\"name\":"
    "\"f\",\"parameters\":{\"b\":{\"type\":\"string\"},\"a\":{\"type\":[\"integer\",\"null\"]}}}}],"
    "\"n\":[3,1,2],\"s\":\"a,b c\",\"add_generation_prompt\":true}";

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n) {
    static const struct weft_tmpl_message messages[] = {
        {"system", "Be brief.", 6, 9}, {"user", " Hi {{ x }} ", 4, 12}, {"assistant", "", 9, 0}};
    weft_log_init("fuzz", WEFT_LOG_ERROR, false); /* no line for each missing filter */
    struct weft_errmsg why = {""};
    weft_tmpl *chat;
    weft_err err = weft_tmpl_new((const char *)bytes, n, NULL, &chat, &why);
    WEFT_ASSERT((err == WEFT_OK) == (chat != NULL));
    WEFT_ASSERT(!err || err == WEFT_E_NOMEM || why.text[0]);
    for (size_t k = 0; chat && k <= 3; k++) {
        struct weft_buf out;
        weft_buf_init(&out, 4096);
        err = weft_tmpl_render(chat, messages, k, k % 2 == 0, &out, &why);
        WEFT_ASSERT(err == WEFT_OK || err == WEFT_E_INVAL || err == WEFT_E_TOOBIG);
        WEFT_ASSERT(out.len <= 4096);
        weft_buf_fini(&out);
    }
    static json_t *vars;
    if (!vars) vars = json_loads(variables, 0, NULL);
    WEFT_ASSERT(vars);
    if (chat) {
        struct weft_buf out;
        weft_buf_init(&out, 4096);
        err = weft_tmpl_render_json(chat, vars, NULL, &out, NULL, &why);
        WEFT_ASSERT(err == WEFT_OK || err == WEFT_E_INVAL || err == WEFT_E_TOOBIG);
        WEFT_ASSERT(out.len <= 4096);
        weft_buf_fini(&out);
    }
    weft_tmpl_free(chat);
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
        "{% for t in tools %}{% for k, v in t.function.parameters | dictsort %}{{ k ~ v.type }}"
        "{% if loop.last %}{% continue %}{% endif %}{{ loop.nextitem }}{% else %}-{% endfor %}"
        "{{ t | tojson(indent=2) }}{% endfor %}",
        "{% macro m(a, b=[1, {'k': 2.5}]) -%} {{ a }}{{ b[1].k }}{{ varargs }}{{ kwargs }}"
        "{{ caller(a) }}{%- endmacro %}{% call(x) m('q', 3, 4, z=5) %}<{{ x }}>{% endcall %}",
        "{% set ns = namespace(i=0, l=[]) %}{% for x in n if x is odd %}{% set ns.i = ns.i + x %}"
        "{% set ns.l = ns.l + [x] %}{% if ns.i > 3 %}{% break %}{% endif %}{% endfor %}{{ ns.l }}",
        "{{ s.split(',')[-1].strip() }}{{ s[::-1] }}{{ s[1:3] | upper | replace('B', 'x', 1) }}"
        "{{ '%5.2f|%-4s|%r' % (1.5, s, n) }}{{ '{} {0}'.format(s) }}{{ s.rsplit(none, 1) }}",
        "{% for x in n recursive %}{{ x }}{{ loop([]) }}{{ loop.cycle('a', 'b') }}"
        "{{ loop.changed(x) }}{% endfor %}{{ n[1:] + n[:-1] }}{{ (1, 2) < (1, 3) <= (2,) }}",
        "{{ n | sort(reverse=true) | map('string') | join('-') }}{{ messages | selectattr('role', "
        "'in', ['user']) | list }}{{ n | groupby(0) }}{{ n | batch(2, 0) | list }}{{ n | slice(2) "
        "| list }}",
        "{% set b | trim | indent(2, true) %} a\n b {% endset %}{{ b }}{% filter upper %}c{% "
        "endfilter %}"
        "{% with q = 1 %}{{ q }}{% endwith %}{% raw %}{{ r }}{% endraw %}{% generation %}g"
        "{% endgeneration %}{{ strftime_now('%d %b %Y') }}",
        "{{ -7 // 2 }}{{ 2 ** 9 % 5 - 1.5e1 / 3 }}{{ 'x' * 3 }}{{ not 1 in n and 'a' not in s }}"
        "{{ s.find('b') }}{{ s | truncate(2, true, '') }}{{ '7' | int + 1.5 | round(1) }}",
        "{% set a = 'xxxxxxxxxxxxxxxx' %}{% for m in messages %}{% set a = a + a %}{{ a }}"
        "{% endfor %}{{ a ~ none ~ true }}",
    };
    for (size_t i = 0; i < sizeof seeds / sizeof *seeds; i++)
        add(seeds[i], strlen(seeds[i]));
}
