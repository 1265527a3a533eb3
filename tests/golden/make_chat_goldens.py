"""Writes chat_goldens.json: templates, conversations, and Jinja2's output for them.

    python3 tests/golden/make_chat_goldens.py > tests/golden/chat_goldens.json

Needs Debian's python3-jinja2. The environment is the one that templates of language models are
written for: trim_blocks, lstrip_blocks, loop controls, {% generation %}, raise_exception, a fixed
clock for strftime_now, a tojson that escapes neither HTML nor non-ASCII characters.
"""
import datetime
import json

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
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

# More features of the engine, each rendered once over VARIABLES.
FEATURES = [
    # loops
    "{% for k, v in tools[0].function.parameters.properties.items() %}{{ k }}={{ v.type }};{% endfor %}",
    "{% for m in messages if m.role == 'user' %}{{ loop.index }}/{{ loop.length }}{{ m.content }}"
    "{% else %}none{% endfor %}",
    "{% for m in messages if m.role == 'nobody' %}x{% else %}none{% endfor %}",
    "{% for x in [] %}x{% else %}{% set y = 1 %}none{{ y }}{% endfor %}{{ y }}",
    "{% for x in 'a\u00e9z' %}{{ x }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.depth }},{% endfor %}",
    "{% for x in numbers %}{% if x == 2 %}{% continue %}{% endif %}{% if x == 5 %}{% break %}{% endif %}"
    "{{ x }}{{ loop.previtem }}{{ loop.nextitem }} {% endfor %}",
    "{% for x in [1, 1, 2, 2, 1] %}{{ loop.changed(x) }}{{ loop.cycle('a', 'b', 'c') }} {% endfor %}",
    "{% for n in tree recursive %}{{ n.name }}{% if n.below %}({{ loop(n.below) }}){% endif %}"
    "{{ loop.depth0 }}{% endfor %}",
    "{% for a in [1, 2] %}{% for b in [3, 4] %}{% if b == 4 %}{% break %}{% endif %}{{ a }}{{ b }}"
    "{% endfor %}{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3)), (4, [5, 6])] %}{{ a }}{{ b }}{{ c }} {% endfor %}",
    "{% for a, b in [1, 2] %}{% endfor %}", "{% for a in 5 %}{% endfor %}", "{% for a in none %}x{% endfor %}",
    "{% for a in nothing %}x{% else %}nothing{% endfor %}",
    "{% for i in range(3) %}{{ i }}{% endfor %}{% for i in range(5, -5, -3) %}{{ i }},{% endfor %}"
    "{{ range(2, 4) | list }}{{ range(3) | sum }}",
    "{{ range(200000) | length }}", "{{ range(0, 5, 0) | list }}",
    "{% for x in 1, 2 %}{{ x }}{% endfor %}{% set a, b = 'xy' %}{{ b ~ a }}{% set c = 1, 2 %}{{ c }}",
    "{% set x = 1 %}{% for i in [1] %}{% set x = 2 %}{{ x }}{% endfor %}{{ x }}",
    # namespaces
    "{% set ns = namespace(n=0, s='') %}{% for m in messages %}{% set ns.n = ns.n + 1 %}"
    "{% set ns.s = ns.s ~ m.role[0] %}{% endfor %}{{ ns.n }}{{ ns.s }}{{ ns.other is defined }}",
    "{% set d = {'a': 1} %}{% set d.a = 2 %}", "{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a + ns.b }}{{ ns }}",
    # macros
    "{% macro f(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{{ varargs }}{{ kwargs }}{% endmacro %}"
    "{{ f(1) }}|{{ f(1, c=3) }}|{{ f(1, 2, 3, 4, 5) }}|{{ f(b=1, z=9) }}",
    "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(1, 2) }}", "{% macro f(a) %}{{ a }}{% endmacro %}{{ f(b=2) }}",
    "{% macro f(a) %}{{ a is defined }}{{ f.name }}{% endmacro %}{{ f() }}{{ f(1) | length }}",
    "{% macro down(n) %}{{ n }}{% if n > 0 %}{{ down(n - 1) }}{% endif %}{% endmacro %}{{ down(9) }}",
    "{% macro box(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call box('b') %}in{% endcall %}",
    "{% macro each(l) %}{% for x in l %}{{ caller(x, loop.index) }}{% endfor %}{% endmacro %}"
    "{% call(x, i) each([7, 8]) %}{{ i }}:{{ x }} {% endcall %}",
    "{% set x = 'out' %}{% macro f() %}{{ x }}{{ y }}{% endmacro %}{% set y = 'late' %}{{ f() }}"
    "{% for i in [1] %}{% set x = 'in' %}{{ f() }}{% endfor %}",
    "{% macro f() %}{% set q = 1 %}{{ q }}{% endmacro %}{{ f() }}{{ q is defined }}",
    "{{ nothing() }}", "{{ 'a'() }}", "{{ messages[0].content.nothing() }}",
    # blocks
    "{% set x %}a{{ 1 }}{% set y = 2 %}b{% endset %}[{{ x }}]{{ y is defined }}",
    "{% set x | upper | trim %} shout {% endset %}[{{ x }}]", "{% filter upper %}a{{ 'b' }}{% endfilter %}",
    "{% filter replace('a', 'b') | upper %}aaa{% endfilter %}",
    "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}",
    "{% set a = 5 %}{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}",
    "{% raw %}{{ not }} {% this %}{# either #}{% endraw %}|{%- raw -%}  x  {%- endraw -%}  y",
    "{% generation %}words{% set z = 1 %}{% endgeneration %}{{ z is defined }}\n",
    "  {% generation %}\n  a\n  {% endgeneration %}\nb",
    # literals and operators
    "{{ 1 + 2 * 3 - 4 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 2 ** 10 }} {{ 2 ** -1 }}",
    "{{ 1.5 }} {{ 1e3 }} {{ 1e16 }} {{ 1.0e-5 }} {{ 0.1 + 0.2 }} {{ 3.0 }} {{ 1_000 }} {{ 0x1f }} {{ 10 / 4 }}",
    "{{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 1 == 1.0 }} {{ true + true }} {{ -3 | abs }} {{ 2 - -3 }} {{ +4 }}",
    "{{ 1 / 0 }}", "{{ 1 % 0 }}", "{{ 'a' - 1 }}", "{{ -'a' }}", "{{ none + 1 }}",
    "{{ 'ab' * 3 }}{{ 2 * [1, 2] }}{{ [1] + [2] }}{{ (1,) + (2, 3) }}{{ 'x' * -1 }}",
    "{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 'a' < 'b' }}{{ [1, 2] < [1, 3] }}{{ 2 >= 2.0 }}{{ 'B' < 'a' }}",
    "{{ 1 < 'a' }}", "{{ none < 1 }}",
    "{{ 'a' in 'abc' }}{{ 'a' not in 'abc' }}{{ 1 in [1, 2] }}{{ 'role' in messages[0] }}{{ 3 not in numbers }}",
    "{{ 1 in 'a' }}", "{{ 1 in 5 }}", "{{ 'x' in nothing }}",
    "{{ [1, 'two', 3.0, none, true, {'k': 'it\\'s'}, (1,), ()] }}", "{{ {'a': [1], 2: 'b', 'c': {}} }}",
    "{{ {'a': {'b': 1}}['a']['b'] }}{{ {1: 'x'}[1] }}{{ {'a': 1}.b is defined }}",
    "{{ 'a' 'b' \"c\" }}{{ 'A\\x41\\u00e9\\101\\n\\q' }}", "{{ (1, 2)[0] }}{{ [1, 2, 3].1 }}{{ (1) }}{{ (1,) }}",
    "{{ 'yes' if numbers else 'no' }}{{ ('a' if false) is defined }}{{ 1 if false else 2 if false else 3 }}",
    "{{ not true or true and false }}{{ not (1 == 2) }}{{ 1 and 0 or 5 }}{{ [] or 'e' }}{{ none ~ 1.0 ~ [1] }}",
    # slices
    "{{ numbers[1:] }}{{ numbers[:2] }}{{ numbers[::-1] }}{{ numbers[-2:] }}{{ numbers[1:5:2] }}{{ numbers[5:1] }}",
    "{{ 'h\u00e9llo'[1:3] }}{{ 'h\u00e9llo'[::-1] }}{{ 'h\u00e9llo'[-1] }}{{ 'abc'[9] is defined }}{{ 'abc'[:-1] }}",
    "{{ numbers[::0] }}", "{{ numbers[4:0:-2] }}{{ numbers[-100:100] }}{{ numbers[100:] }}{{ (1, 2, 3)[1:] }}",
    # strings
    "{{ ' a b '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ 'xa'.lstrip('x') }}|{{ 'ax\\n'.rstrip() }}|"
    "{{ '\u3000x\u00a0'.strip() }}|",
    "{{ 'a,b,,c'.split(',') }}{{ ' a  b '.split() }}{{ 'a,b,c'.split(',', 1) }}{{ 'a b c'.split(none, 1) }}"
    "{{ 'a,b,c'.rsplit(',', 1) }}{{ ' a b c '.rsplit(none, 1) }}{{ ''.split() }}{{ ''.split(',') }}",
    "{{ 'a</think>b'.split('</think>')[-1].lstrip('\\n') }}", "{{ 'a'.split('') }}",
    "{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x', 'c')) }}{{ 'abc'.startswith('') }}{{ 'a'.startswith(1) }}",
    "{{ 'aaa'.replace('a', 'b', 2) }}{{ 'abc'.replace('', '-') }}{{ 'abc' | replace('b', '') }}",
    "{{ 'Hello World'.upper() }}{{ 'HI'.lower() }}{{ 'hello wORLD'.title() }}{{ 'hELLO w'.capitalize() }}"
    "{{ 'stra\u00dfe \u00e9'.upper() }}{{ 'aB'.swapcase() }}",
    "{{ 'abcabc'.find('c') }}{{ 'abc'.find('x') }}{{ 'abcabc'.rfind('c') }}{{ 'abcabc'.index('b', 2) }}"
    "{{ 'abcabc'.count('bc') }}{{ 'aaa'.count('') }}{{ '\u00e9a'.find('a') }}", "{{ 'abc'.index('x') }}",
    "{{ '-'.join(['a', 'b']) }}{{ ', '.join('abc') }}", "{{ '-'.join([1]) }}",
    "{{ 'a\\nb\\r\\nc\\n'.splitlines() }}{{ 'a=b=c'.partition('=') }}{{ 'a=b=c'.rpartition('=') }}"
    "{{ 'abc'.partition('x') }}{{ 'abc'.rpartition('x') }}",
    "{{ 'ab'.center(7) }}|{{ 'ab'.ljust(4, '.') }}|{{ 'ab'.rjust(4) }}|{{ '-7'.zfill(4) }}|{{ 'abc' | center(6) }}|",
    "{{ '12'.isdigit() }}{{ 'a1'.isalnum() }}{{ 'ab'.isalpha() }}{{ ' '.isspace() }}{{ 'AB'.isupper() }}"
    "{{ ''.isdigit() }}{{ 'ab'.islower() }}",
    "{{ 'unprefixed'.removeprefix('un') }}{{ 'a.txt'.removesuffix('.txt') }}{{ 'a'.removesuffix('b') }}",
    "{{ '{} and {}'.format(1, 'b') }}{{ '{1}{0}{{}}'.format('a', 'b') }}{{ '{x}'.format(x=3) }}", "{{ '{}'.format() }}",
    "{{ '%s-%d-%05.2f-%r-%%-%5s|%-5s|%x' % ('a', 3, 2.5, 'q', 'r', 's', 255) }}", "{{ '%d' % 'a' }}",
    "{{ '%s %s' % ('a',) }}", "{{ '%(a)s' % {'a': 1} }}{{ '%s' % 5 }}{{ '%s=%s' | format('a', 1) }}",
    # lists and dictionaries
    "{{ [1, 2, 1].count(1) }}{{ [1, 2].index(2) }}", "{{ [1].append(2) }}",
    "{{ {'a': 1}.update({'b': 2}) }}", "{{ messages[0].get('role') }}{{ messages[0].get('x') }}"
    "{{ messages[0].get('x', 'd') }}{{ messages[0].keys() | list }}{{ {'a': 1, 'b': 2}.values() | list }}",
    "{{ {'items': 1}['items'] }}{{ {'items': 1}.items() | list }}{{ {'get': 1}.get is callable }}",
    "{{ messages[0].__class__ }}{{ ''.__class__ is defined }}", "{{ ''.__class__.__mro__ }}",
    "{{ dict(a=1, b='x') }}{{ dict({'a': 1}, a=2) }}", "{{ 5.x is defined }}{{ none.x is defined }}{{ none['x'] is defined }}",
    # filters
    "{{ tools | tojson }}", "{{ tools[0] | tojson(indent=2) }}", "{{ {'b': 1, 'a': [], 'c': {}} | tojson(indent=4, sort_keys=true) }}",
    "{{ '\u00e9<&>\\'\"\\n\\x7f\\x01/' | tojson }}{{ '\u00e9\U0001f642' | tojson(ensure_ascii=true) }}{{ none | tojson }}",
    "{{ [1, 2.0, true, none, 1e100] | tojson }}{{ (1, 2) | tojson }}{{ [1, 2] | tojson(separators=(',', ':')) }}",
    "{{ {1: 'a', none: 'b', true: 'c'} | tojson }}", "{{ nothing | tojson }}", "{{ namespace(a=1) | tojson }}",
    "{{ nothing | default('d') }}{{ '' | default('d') }}{{ '' | default('d', true) }}{{ none | d('x') }}"
    "{{ nothing | default }}{{ none | default('n', boolean=true) }}",
    "{{ [3, 1, 2] | sort }}{{ ['b', 'A', 'c'] | sort }}{{ ['b', 'A'] | sort(case_sensitive=true) }}"
    "{{ [3, 1, 2] | sort(reverse=true) }}{{ messages | sort(attribute='role') | map(attribute='role') | list }}",
    "{{ [1, 'a'] | sort }}", "{{ {'b': 1, 'A': 3, 'c': 2} | dictsort }}{{ {'b': 1, 'A': 3} | dictsort(by='value') }}"
    "{{ {'b': 1, 'A': 3} | dictsort(true) }}{{ {'b': 1, 'a': 3} | dictsort(reverse=true) }}",
    "{{ numbers | first }}{{ numbers | last }}{{ [] | first is defined }}{{ 'abc' | last }}{{ numbers | length }}",
    "{{ [1, 2] | join('-') }}{{ messages | join(',', attribute='role') }}{{ 'abc' | join('.') }}",
    "{{ ['a', 'b'] | map('upper') | list }}{{ messages | map(attribute='content') | map('length') | list }}"
    "{{ messages | map(attribute='x', default='-') | join }}{{ ['a'] | map('replace', 'a', 'b') | list }}",
    "{{ numbers | select('odd') | list }}{{ numbers | reject('gt', 3) | list }}{{ [0, 1, ''] | select | list }}"
    "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}"
    "{{ messages | rejectattr('role', 'in', ['user', 'tool']) | map(attribute='role') | join(',') }}"
    "{{ messages | selectattr('tool_calls') | list }}{{ messages | selectattr('x', 'defined') | list }}",
    "{% if numbers | select('gt', 99) %}always{% endif %}", "{{ numbers | select('odd') | length }}",
    # over false values these yield nothing and look at nothing, not even at their arguments
    "{% for x in [nothing, none, false, 0, 0.0, '', [], {}, ()] %}{{ x | select | list }}"
    "{{ x | reject('odd') | list }}{{ x | selectattr('a') | list }}{{ x | rejectattr('a', 'in', 5) | list }}"
    "{{ x | map('upper') | list }}{{ x | map(attribute='a') | list }}{% endfor %}",
    "{{ none | select('strange') | list }}{{ [] | map('strange') | list }}{{ false | selectattr | list }}"
    "{{ none | map | list }}{% if none | map('upper') %}always{% endif %}",
    "{% for call in none | selectattr('type', 'equalto', 'function') %}{{ call }}{% else %}none{% endfor %}",
    "{{ true | select | list }}", "{{ 5 | map('string') | list }}", "{{ 1.5 | rejectattr('a') | list }}",
    "{{ [1] | map('strange') | list }}", "{{ [1] | select('strange') | list }}", "{{ [1] | map | list }}",
    # a missing thing is no fault before it is reached
    "{% if nothing %}{{ '{}' | strange_filter(1, a=2) | upper }}{{ 1 is strange_test }}{% endif %}fine",
    "{% if messages %}{{ '{}' | strange_filter(1, a=2) }}{% endif %}",
    "{% if messages %}{{ 1 is not strange_test(1) }}{% endif %}",
    "{{ (nothing | strange_filter) if nothing else 'not' }}{{ 'x' if true else (1 is strange_test) }}",
    "{% if 'strange_filter' is filter %}{{ 'a' | strange_filter }}{% endif %}{{ 'strange_test' is test }}",
    "{{ [1, 2, 2, 1] | unique | list }}{{ ['a', 'A'] | unique | list }}{{ [1, 2] | sum }}{{ [1.5, 2] | sum(start=1) }}"
    "{{ numbers | min }}{{ numbers | max }}{{ ['b', 'A'] | min }}{{ [] | max is defined }}",
    "{{ [1, 2, 3] | reverse | list }}{{ 'abc' | reverse }}{{ {'a': 1} | list }}{{ 'ab' | list }}{{ nothing | list }}",
    "{{ [1, 2, 3, 4, 5] | batch(2) | list }}{{ [1, 2, 3] | batch(2, 0) | list }}{{ [1, 2, 3, 4] | slice(3) | list }}"
    "{{ [1, 2, 3, 4] | slice(3, 'x') | list }}",
    "{% for role, group in messages | groupby('role') %}{{ role }}:{{ group | length }} {% endfor %}",
    "{{ 'a\\nb\\n\\nc' | indent }}|{{ 'a\\nb' | indent(2, true) }}|{{ 'a\\n\\nb\\n' | indent(2, blank=true) }}|"
    "{{ 'a\\nb' | indent('> ') }}|{{ '' | indent(2, first=true) }}|{{ 'a\\n' | indent(first=true) }}|",
    "{{ 'hello big world' | truncate(9) }}{{ 'hello big world' | truncate(9, true) }}{{ 'hello' | truncate(5) }}"
    "{{ 'hello big world' | truncate(8, false, '!', 0) }}",
    "{{ '3' | int }}{{ 'x' | int }}{{ 'x' | int(7) }}{{ '3.9' | int }}{{ 3.9 | int }}{{ 'ff' | int(0, 16) }}{{ none | int }}"
    "{{ '2.5' | float }}{{ 'x' | float }}{{ 3 | float }}{{ true | int }}{{ ' 12 ' | int }}",
    "{{ 2.5 | round }}{{ 3.5 | round }}{{ 2.567 | round(2) }}{{ 2.1 | round(0, 'ceil') }}{{ 2.9 | round(method='floor') }}"
    "{{ 7 | round }}",
    "{{ 'the end-of (a) line' | title }}{{ 'ABC def' | capitalize }}{{ 'a b, c' | wordcount }}{{ 5 | string ~ 1 }}"
    "{{ '<a href=\"x\">&\\'' | escape }}{{ '<b>' | safe }}{{ 5 | upper }}{{ 'xax' | trim('x') }}",
    "{{ {'a': 1} | items | list }}{{ nothing | items | list }}", "{{ 5 | length }}", "{{ none | length }}",
    "{{ -5 | abs }}{{ 5.5 | abs }}{{ 'a' | abs }}", "{{ 'ab' | first ~ 'x' | upper }}{{ ('a' ~ 'b') | upper }}",
    # tests
    "{% for x in [1, 1.5, 'a', none, true, [], {}, (), nothing] %}{{ x is number }}{{ x is integer }}{{ x is float }}"
    "{{ x is string }}{{ x is none }}{{ x is boolean }}{{ x is true }}{{ x is false }}{{ x is sequence }}"
    "{{ x is iterable }}{{ x is mapping }}{{ x is defined }}{{ x is callable }}\n{% endfor %}",
    "{{ 3 is odd }}{{ 4 is even }}{{ 9 is divisibleby 3 }}{{ 9 is divisibleby(4) }}{{ 1 is eq 1 }}{{ 1 is ne(2) }}"
    "{{ 2 is gt 1 }}{{ 2 is lessthan 1 }}{{ 2 is ge 2 }}{{ 1 is le 0 }}{{ 'a' is in ['a'] }}{{ 'a' is not in 'b' }}",
    "{{ 'AB' is upper }}{{ 'ab' is lower }}{{ 'aB' is upper }}{{ none is sameas none }}{{ 1 is sameas true }}"
    "{{ 'tojson' is filter }}{{ 'x' is filter }}{{ 'odd' is test }}{{ 'a' is equalto 'a' and 'b' is equalto('b') }}",
    "{{ x is defined and x.y is defined }}{{ not x is defined }}{{ -1 is number }}",
    # functions
    "{{ strftime_now('%Y-%m-%d %H:%M:%S %A %B %j %y %-d %% %p|%q') }}", "{{ strftime_now('%d %b %Y') }}{{ strftime_now('') }}",
    "{{ raise_exception('no: ' ~ messages | length) }}", "{% if strftime_now is defined %}yes{% endif %}{{ range is callable }}",
    # white space
    "a\n  {%- for x in numbers[:2] -%}\n  {{ x }}\n  {%- endfor %}\nb\n", "  {%- if true %}\n x\n  {%+ endif %}\n y",
    "{{ 'a' }}\n{{ 'b' }}\n{%- set x = 1 -%}\n\n {{ x }}", "{% if true -%}\n\n  a  \n\n{%- endif %}\n\nb",
    "x {# c -#}  y {#- d #}\n  {# e #}\nz", "  {% raw %}\n  {{ a }}\n  {% endraw %}\nb", "{{ {'a': {'b': 1}} }}{{{'a': 1}['a']}}",
]

VARIABLES = {
    "messages": [
        {"role": "system", "content": "Be brief."}, {"role": "user", "content": "Is it warm in \u0141\u00f3d\u017a?"},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1}}}]},
        {"role": "tool", "content": "{\"t\": 21.5}"}, {"role": "user", "content": "Thanks"}],
    "tools": [{"type": "function", "function": {
        "name": "weather", "description": "Town & <country>, \u65e5\u672c",
        "parameters": {"type": "object", "properties": {
            "place": {"type": "string"}, "days": {"type": "integer", "enum": [1, 2.5]}},
            "required": ["place"]}}}],
    "numbers": [1, 2, 3, 4, 5, 6],
    "tree": [{"name": "a", "below": [{"name": "b", "below": []}, {"name": "c", "below": [{"name": "d"}]}]},
             {"name": "e"}],
    "documents": None, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>",
}
NOW = datetime.datetime(2025, 3, 14, 15, 9, 26)


class Generation(Extension):
    """{% generation %} marks the assistant's words; it renders as its body."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def to_json(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def fail(message):
    raise TemplateError(message)


def render(template, **variables):
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, loopcontrols])
    env.globals["raise_exception"] = fail
    env.globals["strftime_now"] = NOW.strftime
    env.filters["tojson"] = to_json
    try:
        return {"text": env.from_string(template).render(**variables)}
    except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError) as err:
        return {"error": str(err)}


def render_talk(template, messages, prompt):
    return render(template, messages=messages, add_generation_prompt=prompt,
                  bos_token="<|begin_of_text|>", eos_token="<|end_of_text|>", tools=None,
                  documents=None)


cases = [{"template": t, "messages": m, "prompt": p, **render_talk(t, m, p)}
         for t in TEMPLATES for m in CONVERSATIONS for p in (True, False)]
features = [{"template": t, **render(t, **VARIABLES)} for t in FEATURES]
print(json.dumps({"made_by": "tests/golden/make_chat_goldens.py", "cases": cases,
                  "now": NOW.isoformat(), "variables": VARIABLES, "features": features},
                 indent=1, ensure_ascii=True))
