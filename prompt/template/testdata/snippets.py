"""Answers the templates of snippets.jsonl as transformers would.

It reads the file's templates and writes them back, each with "ok", what Python
renders, or "err", the error it raises. Made with Python 3.11, Jinja2 3.1.6 and
MarkupSafe 3.0.4, in an environment set up as transformers 4.57 does for chat
templates. Run it in this folder: python3 snippets.py
"""

import json
from datetime import datetime

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_call"), [], [], body).set_lineno(line)

    def _call(self, caller):
        return caller()


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
env.filters["tojson"] = tojson
env.globals["raise_exception"] = raise_exception
env.globals["strftime_now"] = lambda format: datetime(2024, 2, 9, 7, 5, 3, 42).strftime(format)

with open("snippets.json", encoding="utf-8") as f:
    variables = f.read()
with open("snippets.jsonl", encoding="utf-8") as f:
    rows = [json.loads(line) for line in f]
with open("snippets.jsonl", "w", encoding="utf-8") as f:
    for row in rows:
        out = {"t": row["t"]}
        try:
            out["ok"] = env.from_string(row["t"]).render(
                documents=None, add_generation_prompt=True, bos_token="<s>", **json.loads(variables)
            )
        except Exception as e:
            out["err"] = f"{type(e).__name__}: {e}"
        f.write(json.dumps(out, ensure_ascii=False) + "\n")
