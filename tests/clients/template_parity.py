#!/usr/bin/env python3
"""Compares the template interpreter with Python's jinja2 in the environment transformers gives a chat template.

Usage: template_parity.py --tool build/tests/clients/template_tool --source TREE [--count 500] [--seed 1] [-v]

Every template of tests/data/templates and the tiny model's own renders every generated conversation in both; so do the
snippets below, which pin single rules. A case agrees when both give the same text or both fail. Text from the conversation
carries a mark no template contains: a run said to come from the template must not have it. Last, golden renders of the
official template (sizes and SHA-256) are checked against tests/data/templates/glm53_style.jinja.
"""
import argparse
import datetime
import hashlib
import json
import pathlib
import random
import subprocess
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox

NOW = 1767225600 + 45296  # any fixed instant
MARK = "\u00a7"


class Generation(jinja2.ext.Extension):
    """{% generation %}: its body is a call block, as in transformers."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


def environment(mutable):
    base = jinja2.sandbox.SandboxedEnvironment if mutable else jinja2.sandbox.ImmutableSandboxedEnvironment
    env = base(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env.filters["tojson"] = tojson
    env.filters["from_json"] = json.loads
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: datetime.datetime.fromtimestamp(NOW).strftime(form)
    return env


class Reference:
    def __init__(self, source):
        try:
            self.template = environment("{#- mutable" in source).from_string(source)
        except (jinja2.TemplateError, SyntaxError) as error:
            self.template, self.error = None, error

    def render(self, context):
        """(text, None) or (None, error)."""
        if self.template is None:
            return None, self.error
        try:
            return self.template.render(**json.loads(json.dumps(context))), None
        except Exception as error:  # Python's own errors come through templates: TypeError, OverflowError, ...
            return None, error


WORDS = ["hello", "World", "straße", "ÉCOLE", "привет", "Мир", "γεια", "你好", "日本語", "🙂", "👩‍👩‍👧", "e\u0301", "don't",
         '"quoted"', "a\\b", "<b>", "</b>", "&amp;", "{{ x }}", "{% if %}", "<think>", "</think>", "<|user|>", "<|observation|>",
         "<tool_response>", "</tool_response>", "1.5", "null", "\x07", "\x7f", "\u2028", "ﬁ", "İ", "Ŝŝ", "ЖЖ", "％"]
SPACES = [" ", " ", " ", "\n", "\n\n", "\t", "  ", "\r\n", "\u00a0", "\u2003", "\x1c", "\u3000"]


class Generator:
    def __init__(self, seed):
        self.r = random.Random(seed)

    def text(self, longest=8):
        r = self.r
        out = r.choice(["", "", " ", "\n", "\t\n "])
        for _ in range(r.randint(0, longest)):
            out += r.choice([MARK, ""]) + r.choice(WORDS) + r.choice(SPACES)
        return out

    def value(self, depth=0):
        r = self.r
        pick = r.randint(0, 11 if depth < 3 else 8)
        if pick <= 2:
            return self.text(3)
        if pick == 3:
            return r.choice([0, 1, -7, 2**53, -2**63, 2**63, 12345678901234567890123, 10**30])
        if pick == 4:
            return r.choice([0.0, -0.0, 1.0, 1e22, 1e16, 0.1, 1.5e-7, 123456.789, 1e-5, 3.14])
        if pick <= 7:
            return r.choice([None, True, False])
        if pick == 8:
            return r.choice([[], {}, ""])
        if pick == 9:
            return [self.value(depth + 1) for _ in range(r.randint(0, 3))]
        return {self.key(): self.value(depth + 1) for _ in range(r.randint(0, 3))}

    def key(self):
        return self.r.choice(["city", "days", "items", "Ünit", "a b", "get", "keys", "x", "<k>", "Zeta", "alpha", "type", "name"])

    def part(self):
        r = self.r
        kind = r.choice(["text", "text", "text", "image", "image_url", "video_url", "input_audio", "file", "bare"])
        if kind == "bare":
            return self.text(3)
        if kind == "text":
            return {"type": "text", "text": self.text(4)}
        return {"type": kind, kind: {"url": "data:x"}}

    def content(self):
        pick = self.r.randint(0, 9)
        if pick <= 5:
            return self.text()
        if pick <= 7:
            return [self.part() for _ in range(self.r.randint(0, 4))]
        return self.r.choice([None, "", 5, 1.0, True])

    def assistant(self, ids):
        r = self.r
        message = {"role": "assistant", "content": self.content()}
        style = r.randint(0, 5)
        if style == 0:
            message["reasoning_content"] = self.text()
        elif style == 1:
            message["content"] = "<think>" + self.text(4) + "</think>" + self.text(4)
        elif style == 2:
            message["content"] = self.text(3) + "</think>" + self.text(3) + "</think>\n\n" + self.text(2)
        elif style == 3:
            message["reasoning_content"] = None
        if r.random() < 0.5:
            calls = []
            for _ in range(r.randint(1, 3)):
                ids.append(f"c{len(ids)}")
                arguments = {self.key(): self.value() for _ in range(r.randint(0, 4))}
                function = {"name": r.choice(["get_weather", "now", "x.y-z"]), "arguments": arguments}
                calls.append({"id": ids[-1], "type": "function", "function": function})
            message["tool_calls"] = calls
        elif r.random() < 0.2:
            message["tool_calls"] = r.choice([None, []])
        return message

    def tool(self, ids):
        r = self.r
        message = {"role": "tool", "content": self.content()}
        if ids and r.random() < 0.8:
            message["tool_call_id"] = r.choice(ids)
        if r.random() < 0.2:
            message["content"] = [{"tool_call_id": i, "output": self.content()} for i in r.sample(ids, min(len(ids), 2))]
        elif r.random() < 0.1:
            message["content"] = {"result": self.value()}
        return message

    def schema(self, depth=0):
        r = self.r
        out = {"type": "object", "properties": {}}
        for _ in range(r.randint(0, 3)):
            spec = {"type": r.choice(["string", "integer", ["string", "null"], "array"])}
            if r.random() < 0.3:
                spec["enum"] = [self.value(3) for _ in range(2)]
            if depth < 2 and r.random() < 0.4:
                spec = self.schema(depth + 1)
            out["properties"][self.key()] = spec
        if r.random() < 0.5:
            out["required"] = list(out["properties"])[:1]
        return out

    def tools(self):
        out = []
        for i in range(self.r.randint(0, 3)):
            function = {"name": f"tool_{i}", "description": self.text(4), "parameters": self.schema()}
            if self.r.random() < 0.3:
                function[self.r.choice(["strict", "defer_loading"])] = self.r.choice([True, False])
            out.append({"type": "function", "function": function})
        return out

    def context(self):
        r = self.r
        ids, messages = [], []
        if r.random() < 0.4:
            messages.append({"role": "system", "content": self.content()})
        for _ in range(r.randint(1, 4)):
            messages.append({"role": "user", "content": self.content()})
            for _ in range(r.randint(0, 2)):
                messages.append(self.assistant(ids))
                while r.random() < 0.4:
                    messages.append(self.tool(ids))
        if r.random() < 0.15:
            messages.append({"role": r.choice(["developer", "function", "system"]), "content": self.content()})
        context = {"messages": messages, "tools": None if r.random() < 0.4 else self.tools(), "documents": None,
                   "add_generation_prompt": r.random() < 0.8, "bos_token": "<s>", "eos_token": "</s>"}
        for name, values in {"enable_thinking": [True, False], "thinking": [True, False, None], "clear_thinking": [True, False],
                             "reasoning_effort": ["low", "high", "medium", None, "Low"], "date_string": ["1 Jan"]}.items():
            if r.random() < 0.3:
                context[name] = r.choice(values)
        return context


# Rules of api spec §2.12 (c) one by one, most of which a C++ port gets wrong at first. Both sides must agree, errors included.
SNIPPETS = r"""
{{ 'x' + 1 }}
{{ x + 'a' }}
{{ x.y }}
{{ x.y is defined }}
{{ {}.a }}|{{ {}.a.b is defined }}
{{ ''.0.k }}
{{ x() }}
{{ x | length }} {{ x | list }} {{ x | string }}|{{ x | upper }}
{{ none | length }}
{{ 5 | length }}
{{ none.foo is defined }}
{{ none.foo.bar }}
{% if false %}{% macro m() %}a{% endmacro %}{% endif %}{{ m() }}
{% macro m(a) %}{{ a is defined }}{% endmacro %}{{ m() }}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(b=1) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}
{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}
{% macro m(n) %}{% if n %}{{ n }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(30) }}
{% for i in [1, 2] %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}
{% for i in [1, 2, 3] %}{% if loop.first %}{% set v = i %}{% endif %}[{{ v }}]{% endfor %}
{% set ns = namespace(seen=[]) %}{% for i in [1, 2, 1, 3, 2] if i not in ns.seen %}{{ i }}{% set ns.seen = ns.seen + [i] %}{% endfor %}
{% set g = [1, 2, 3] | select('odd') %}{% for i in g %}{{ i }}{% endfor %}-{% for i in g %}{{ i }}{% endfor %}
{% for a, b in [[1, 2, 3]] %}{{ a }}{% endfor %}
{% for a, b in [[1]] %}{{ a }}{% endfor %}
{% for i in none %}{% endfor %}
{% for i in 5 %}{% endfor %}
{{ [1, 2, 3][5] is defined }} {{ [1, 2, 3][-4] is defined }} {{ [1, 2, 3][1:][0] }} {{ [1, 2, 3][::-1] }} {{ [1, 2, 3][3:1] }}
{{ 'abc'[::-1] }} {{ 'abc'[-2:] }} {{ 'aé日🙂'[2:] }} {{ 'aé日🙂'[-1] }} {{ 'aé日🙂' | length }}
{{ [1, 2][::0] }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 1 % 0 }}
{{ 'a' < 1 }}
{{ none < 1 }}
{{ [1] < ['a'] }}
{{ 1 in 5 }}
{{ 1 in none }}
{{ 1 in 'abc' }}
{{ x in 'abc' }}
{{ 'a' in x }}
{{ {'a': 1}['b'] is defined }} {{ {'a': 1}.b is undefined }}
{{ -1 | abs }} {{ 2 ** 3 ** 2 }} {{ -2 ** 2 }} {{ not 1 in [2] }} {{ 1 + 2 ~ 3 }} {{ 1 - 2 - 3 }} {{ 2 * 3 % 4 }} {{ '5' ~ 5 * 2 }}
{{ 'a' if true else 'b' if false else 'c' }} {{ ('a' if false else 'b' if false) is defined }}
{{ 'x' is string and 'y' is not none or z }} {{ 1 is not string }} {{ not x is defined }}
{{ [1, 2,] }} {{ (1, 2,) }} {{ {'a': 1,} }} {{ 1, 2 }}
{{ loop is defined }}
{{ raise_exception('stop') }}
{{ 'a' | nosuch }}
{{ 'a' is nosuch }}
{{ 'a'.nosuch() }}
{{ 'abc' | int('x') }} {{ x | default('a') | upper }} {{ 'a-b' | replace('-', '+') | upper | length }}
{{ undefined_a == undefined_b }} {{ undefined_a != none }} {{ undefined_a ~ 'x' }}
{{ range(200000) | length }}
{{ [[1, 2], [3]] | map('first') | list }} {{ ['a', 'b'] | map('upper') | list }} {{ [0, 1, '', 'x'] | select | list }} {{ [0, 1] | reject | list }}
{{ [1, 2] | join(x) }} {{ [none, true, 1.0] | join('-') }} {{ 'abc' | join('.') }} {{ {'a': 1, 'b': 2} | join(',') }}
{{ {'a': 1} | list }} {{ {'a': 1} | first }} {{ {'a': 1, 'b': 2} | length }}
{{ x | tojson }}
{{ range(2) | tojson }}
{{ 'é\u2028\x7f"\\/<>&\'' | tojson }} {{ '🙂é' | tojson(ensure_ascii=True) }} {{ [1.0, 1e22, -0.0, 123456789012345678901] | tojson }}
{{ {'b': 1, 'a': [1, {'z': none, 'y': []}]} | tojson(indent=2, sort_keys=true) }}
{{ 'ß'.capitalize() }} {{ 'ßx'.title() }} {{ 'ß'.upper() }} {{ "they're bill's" | title }} {{ "they're bill's".title() }} {{ 'aBC dEF'.capitalize() }}
{{ ' \u2003\x1c x \u00a0' | trim }}|{{ 'xxabcxx'.strip('x') }} {{ 'abc'.strip('') }} {{ ' a  b '.split(' ') }} {{ ' a  b '.split() }}
{{ 'a b c d'.split(none, 1) }} {{ 'a b c d'.rsplit(none, 1) }} {{ 'a,b,c'.rsplit(',', 1) }} {{ 'a,b,c'.split(',', 0) }}
{{ 'abc'.split('') }}
{{ '%s' % 'a' }} {{ '%s-%s' % ('a', none) }} {{ '%d%%' % 5 }}
{{ '%d' % 'x' }}
{{ '%s %s' % 'a' }}
{{ 'a' % 1 }}
{% set a = 1 %}{% if true %}{% set a = 2 %}{% endif %}{{ a }}{% for i in [1] %}{% set a = 3 %}{{ a }}{% endfor %}{{ a }}
{% set a.b = 1 %}
{% set d = {} %}{% set d.b = 1 %}
{% set ns = namespace(a=1) %}{% set ns.b = ns.a + 1 %}{{ ns.b }}{{ ns.c is defined }}
{% set ns = namespace({'k': 'v'}) %}{{ ns.k }}
{% break %}
{% for i in [1] %}{% endif %}
{% if true %}
{{ 'unclosed }}
{{ (1 }}
{{ }}
{% nosuchtag %}
{% for i in [1,2,3] %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% else %}none{% endfor %}
{% for i in [] %}{% else %}none{% endfor %}
{% for i in [1,2,3] if i > 5 %}{{ i }}{% else %}filtered{% endfor %}
{% macro outer() %}{% macro inner() %}in{% endmacro %}{{ inner() }}{% endmacro %}{{ outer() }}{{ inner is defined }}
{% call(x) [1] %}{% endcall %}
{{ messages is mapping }}{{ [] is sequence }}{{ 'a'.items is defined }}{{ {}.items is callable }}{{ {'items': 1}.items is mapping }}
{%- if true -%} a {%- else -%} b {%- endif -%} c
  {%- set x = 1 %}  y
{{- 'a' -}}
{{ 'a' 'b' }}{# c #}{#- d -#} e
{{ {'a': {'b': [10, 20]}}.a.b.1 }} {{ {'a': {'b': [10, 20]}}['a']['b'][0] }} {{ [[1, [2]]].0.1.0 }}
{{ 0x1F }} {{ 0b11 }} {{ 0o17 }}
{{ 0xZ }}
{{ true | string }} {{ 1.0 | string | length }} {{ 10 | string + 'x' }} {{ '3' * 2 }} {{ [0] * 3 }} {{ 'x' * -1 }}|
{{ [3, 1, 2] | sort | first }} {{ ['b', 'A', 'c'] | sort }} {{ ['b', 'A'] | sort(case_sensitive=true) }} {{ [1, 'a'] | sort }}
{{ [] | min is defined }} {{ [2, 1] | max }} {{ ['a', 'B'] | max }} {{ [{'v': 2}, {'v': 1}] | min(attribute='v') }}
{{ 'hello world'.startswith('hello', 1) if false else 'k' }} {{ 'x'.join(['a', 'b']) }} {{ ''.join([]) }}
{{ ','.join([1]) }}
{{ namespace is callable }} {{ dict is callable }} {{ range is callable }}
{{ 'a\\nb' }} {{ 'a\nb' | indent }} {{ 'a\n\nb\n' | indent(2) }}|{{ '' | indent(2) }}|{{ 'a' | indent('>>', true) }}
{{ [{'a': 1, 'b': {'c': 2}}] | map(attribute='b.c') | first }} {{ [[5, 6]] | map(attribute=1) | list }} {{ [[5, 6]] | map(attribute='1') | list }}
{{ [{'a': 1}, {'a': 2}, {}] | selectattr('a', 'defined') | list }} {{ [{'a': 1}] | selectattr('a', 'gt', 0) | list }} {{ [{'a': none}] | rejectattr('a') | list }}
{{ 1 if x else 2 }}{{ 1 if not x else 2 }} {{ x or 'd' }} {{ x and 'd' }}|
{% with %}{% set q = 1 %}{{ q }}{% endwith %}{{ q is defined }}
{% filter trim %}  a  {% endfilter %}|
{% set t %} a {% endset %}[{{ t }}]
{% raw %}{{ a }}{% endraw %}
""".strip("\n").split("\n")


class Tool:
    """The C++ side: all cases are written at once, the answers read at once."""

    def __init__(self, path):
        self.path, self.lines, self.expected = path, [], []

    def use(self, source):
        self.lines.append(json.dumps({"template": source}))

    def add(self, name, context, reference):
        self.lines.append(json.dumps({"context": context, "now": NOW}))
        self.expected.append((name, context, reference))

    def answers(self):
        result = subprocess.run([self.path], input="\n".join(self.lines) + "\n", capture_output=True, text=True, check=True)
        answers = result.stdout.split("\n")[:-1]
        assert len(answers) == len(self.expected), (len(answers), len(self.expected), result.stderr)
        return [(*case, json.loads(answer)) for case, answer in zip(self.expected, answers)]


def disagreement(context, reference, answer):
    text, error = reference
    if text is None:
        return None if "error" in answer else f"jinja2 fails ({error}), we render {answer['text']!r}"
    if "error" in answer:
        return f"we fail ({answer['error']}), jinja2 renders {text!r}"
    if answer["text"] != text:
        at = next((i for i, (a, b) in enumerate(zip(text, answer["text"])) if a != b), min(len(text), len(answer["text"])))
        return f"differs at {at}: jinja2 {text[max(0, at - 40):at + 60]!r}, we {answer['text'][max(0, at - 40):at + 60]!r}"
    if "".join(run for run, _ in answer["segments"]) != text:
        return "the segments do not add up to the text"
    if any(from_template and MARK in run for run, from_template in answer["segments"]):
        return "text of a message is taken for template text"
    return None


def goldens(tool_path, source):
    """api spec §2.13: renders of the official template whose whole text follows from its description."""
    user = {"role": "user", "content": "Hi"}
    calls = [{"id": "c1", "type": "function",
              "function": {"name": "get_weather", "arguments": {"city": 'Zürich\n"x"', "days": 3}}},
             {"id": "c2", "type": "function", "function": {"name": "now", "arguments": {}}}]
    caller = {"role": "assistant", "content": None, "reasoning_content": "think", "tool_calls": calls}
    say = lambda role, content, **more: {"role": role, "content": content, **more}
    thought = [user, say("assistant", " A1 ", reasoning_content=" R1\n"), say("user", "Q2")]
    parts = [{"type": "image_url", "image_url": {"url": "x"}}, {"type": "text", "text": "What?"},
             {"type": "video_url", "video_url": {"url": "x"}}, {"type": "input_audio", "input_audio": {}}, {"type": "file", "file": {}}]
    outputs = [{"tool_call_id": "c2", "output": "O2"}, {"tool_call_id": "c1", "output": [{"type": "text", "text": "O1"}]}]
    table = [
        ("G01", {"messages": [user]}, 73, "52dda9a6f66c9bf241b9c7b3839c46a7f82a886bb3f3bc3f03e300d5409c453e"),
        ("G02", {"messages": [say("system", "Be brief."), user], "reasoning_effort": "low"}, 92,
         "4be01a3dde2433641cb58b583763bccd0e7c8bbb106c6ad1904b0969a89a1d57"),
        ("G03", {"messages": [user], "reasoning_effort": "high"}, 74, "da98d84ee17dbb0151b1cac2ed3fe45709311161aaea615d36eb943159bc1ff5"),
        ("G04", {"messages": [user], "reasoning_effort": "medium", "enable_thinking": False}, 73,
         "52dda9a6f66c9bf241b9c7b3839c46a7f82a886bb3f3bc3f03e300d5409c453e"),
        ("G07", {"messages": [user, caller, say("tool", "R2", tool_call_id="zz"), say("tool", "R1", tool_call_id="c1")]}, 351,
         "0db363d56278a653b6cbac65ffa953ccf62182aed3f5a1f35328f75f7a793ae1"),
        ("G08", {"messages": thought}, 117, "e1c6136a3443254846d12c244e372566de7316630a00426c9aa74fc1e4c00b34"),
        ("G09", {"messages": thought, "clear_thinking": True}, 113, "84710ac8626aec55069891bd928ce7f4beb8654ae5986245dc3954b2db97b50d"),
        ("G10", {"messages": [user, say("assistant", "<think>\nx\n</think>\n\nA1\n"), say("user", "Q2"), say("assistant", "A2"),
                              say("user", "Q3")]}, 156, "531e1db4254ecc86d6c6eb2aab573b27e2aa988dcd49d0c2cf4def33bad7a033"),
        ("G11", {"messages": [say("user", parts)]}, 196, "584906359f344b57bcd780600a43cf3d2beb29e37b5db6bbc4ca4a6d509f014e"),
        ("G12", {"messages": [user, caller, say("tool", [{"type": "text", "text": "p1"}, {"type": "text", "text": "p2"}],
                                                tool_call_id="c1")]}, 320,
         "92e7594409aa19456473b33af385c243a5ef117471542eb2234e67162c34177c"),
        ("G13", {"messages": [user, caller, say("tool", outputs)]}, 351, "7c2133d3d4cefaf49bad75b4e67c72c87499130ba4dc2226a03b6674067927db"),
        ("G15", {"messages": [user], "add_generation_prompt": False}, 53, "b1c3effec667179e7c121f982f0981189a3ca1c4deadb56cc2caeb4f2237b7ca"),
        ("G16", {"messages": [user, say("system", "S2"), say("developer", "dropped")]}, 85,
         "53779f7bc77eab6798fb1204a4570a14e2904e3c593e0b692f269ff892dd6fc3"),
    ]
    tool = Tool(tool_path)
    tool.use((source / "tests/data/templates/glm53_style.jinja").read_text())
    for name, context, size, digest in table:
        tool.add(name, {"add_generation_prompt": True, "tools": None, **context}, (size, digest))
    failures = 0
    for name, _, (size, digest), answer in tool.answers():
        data = answer.get("text", "").encode()
        if len(data) != size or hashlib.sha256(data).hexdigest() != digest:
            failures += 1
            print(f"{name}: {len(data)} bytes, expected {size}: {answer.get('error', answer.get('text'))!r}")
    print(f"goldens: {len(table) - failures} of {len(table)}")
    return failures


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--tool", required=True)
    options.add_argument("--source", type=pathlib.Path, required=True)
    options.add_argument("--count", type=int, default=500)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("-v", action="store_true")
    args = options.parse_args()

    files = [args.source / "models/tiny-glm5next/chat_template.jinja", *sorted((args.source / "tests/data/templates").glob("*.jinja"))]
    generator = Generator(args.seed)
    contexts = [generator.context() for _ in range(args.count)]
    tool = Tool(args.tool)
    for file in files:
        source = file.read_bytes().decode()
        name = file.stem if file.parent.name == "templates" else "tiny-glm5next"
        reference = Reference(source)
        tool.use(source)
        for context in contexts:
            tool.add(name, context, reference.render(context))
    for number, snippet in enumerate(SNIPPETS):
        tool.use(snippet)
        tool.add(f"snippet {number + 1} {snippet}", contexts[0], Reference(snippet).render(contexts[0]))

    failed, shown, rendered, both_fail = {}, 0, {}, 0
    for name, context, reference, answer in tool.answers():
        both_fail += reference[0] is None and "error" in answer
        rendered[name] = rendered.get(name, 0) + (reference[0] is not None)
        reason = disagreement(context, reference, answer)
        if reason is None:
            continue
        failed[name] = failed.get(name, 0) + 1
        if failed[name] <= (5 if args.v else 1) and shown < 40:
            shown += 1
            print(f"{name}: {reason}")
    unused = [name for name, count in rendered.items() if count == 0 and not name.startswith("snippet")]
    if unused:
        print("no conversation renders with: " + ", ".join(unused))
    total = len(tool.expected)
    print(f"parity: {total - sum(failed.values())} of {total} cases agree ({both_fail} by failing on both sides); "
          f"{len(files)} templates x {args.count} conversations, {len(SNIPPETS)} snippets")
    return 1 if failed or unused or goldens(args.tool, args.source) else 0


if __name__ == "__main__":
    sys.exit(main())
