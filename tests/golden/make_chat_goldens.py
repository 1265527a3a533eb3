"""Writes chat_goldens.json: templates, conversations, and what Jinja2 makes of them.

    python3 tests/golden/make_chat_goldens.py > tests/golden/chat_goldens.json

Needs Debian's python3-jinja2. The environment is the one that templates of language models are
written for: trim_blocks, lstrip_blocks, raise_exception; tools and documents are null.
"""
import json

from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

CHATML = ("{{ bos_token }}{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n'"
          " + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
          "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")

TEMPLATES = [
    CHATML,
    # the same over many lines: white space around blocks is what trim and lstrip are about
    "{{ bos_token }}\n{% for m in messages %}\n    {% if m.role == 'system' %}\n"
    "[{{ m.content | trim }}]\n    {% elif m['role'] == \"user\" %}\nU: {{ m.content }}\n"
    "    {% else %}\nA: {{- m.content }}\n    {% endif %}\n{% endfor %}\n"
    "{% if add_generation_prompt %}A:{% endif %}\n",
    "a {%- if true %} b {% endif -%} \n c",
    "a {%+ if true %}b{% endif +%}\nc\n\n",
    "  {# a comment #}\nx {#- another -#} y {# third #}\n\nz",
    "{% for m in messages %}{{ loop.first }},{{ loop.last }},{{ loop.index }},{{ loop.index0 }},"
    "{{ loop.length }};{% endfor %}",
    "{% for m in messages %}{% if loop.first and m.role == 'system' %}S{% endif %}"
    "{% if not loop.last %}|{% endif %}{% endfor %}",
    "{{ 1 + 2 }} {{ 'a' ~ 1 ~ none ~ true ~ nothing ~ 'b' }} {{ 7 % 3 }} {{ 'x' + 'y' ~ 'z' }}",
    "{{ nothing }}{{ nothing is defined }}{{ bos_token is defined }}{{ nothing is not defined }}"
    "{{ tools is none }}{{ messages[0].tool_calls is undefined }}{{ tools is not none }}",
    "{{ messages[0]['content'] }}/{{ messages[-1].role }}/{{ messages[99] is defined }}",
    "{{ 'a' if messages else 'b' }}{{ 'c' if nothing else 'd' }}[{{ 'e' if false }}]",
    "{{ 'x' == 'x' and 'y' != 'x' }}{{ not 'x' or '' }}|{{ '' or 'second' }}|{{ 'a' and 'b' }}",
    "{{ 1 == true }}{{ none == false }}{{ '' == none }}{{ nothing == undefined_too }}",
    "{% set x = 'outer' %}{% for m in messages %}{{ x }}{% set x = m.role %}{{ x }} {% endfor %}"
    "{{ x }}",
    "{% if add_generation_prompt %}{% set y = 1 %}{% endif %}[{{ y }}]",
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate') }}{% endif %}{{ m.content }}"
    "{% endfor %}",
    "{{ messages | length }} {{ messages[0].content | length }} {{ '  \\t pad\\n ' | trim }}.",
    "{{ 'tab\\there \\'quoted\\' \"double\" back\\\\slash' }}{{ \"it's\" }}",
    "{% for m in messages %}{% for n in messages %}{{ loop.index }}{% endfor %}-{{ loop.index }} "
    "{% endfor %}",
    "{{ messages[0].nothing.more }}",
    "{{ 'a' + nothing }}",
    "{{ 'a' + 1 }}",
    "{{ eos_token }}{{- ' x' -}} \n {{ 'y' }}\n",
    "{% if messages[0].content is string %}text{% else %}parts{% endif %}",
    "{%- for m in messages -%}\n  {{- '<' ~ m.role ~ '>' -}}\n  {{ m.content }}\n{%- endfor %}",
    "line\n  {% if true %}   \n  in\n  {% endif %}\nend",
    "\t{{ 'kept' }}\n\t{% if false %}no{% endif %}\n\n",
    "a\r\nb{% if true %}\r\nc{% endif %}",
    "no tags at all { } % # {",
    "",
]

CONVERSATIONS = [
    [],
    [{"role": "user", "content": "Hello"}],
    [{"role": "system", "content": "  Be brief.\n"}, {"role": "user", "content": "Hi <|im_end|>"},
     {"role": "assistant", "content": "Ho\u00e9"}, {"role": "user", "content": ""}],
]


def fail(message):
    raise TemplateError(message)


def render(template, messages, prompt):
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    env.globals["raise_exception"] = fail
    try:
        return {"text": env.from_string(template).render(
            messages=messages, add_generation_prompt=prompt, bos_token="<|begin_of_text|>",
            eos_token="<|end_of_text|>", tools=None, documents=None)}
    except (TemplateError, TypeError) as err:
        return {"error": str(err)}


cases = [{"template": t, "messages": m, "prompt": p, **render(t, m, p)}
         for t in TEMPLATES for m in CONVERSATIONS for p in (True, False)]
print(json.dumps({"made_by": "tests/golden/make_chat_goldens.py", "cases": cases},
                 indent=1, ensure_ascii=True))
