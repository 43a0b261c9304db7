"""docs/api.md is true: its requests are sent, its answers must be contained in the real ones, its tables name every field."""

import json
import os
import pathlib
import re

import pytest

from test_raw import call

SOURCE = pathlib.Path(os.environ["GODWIT_SOURCE_DIR"])
PAGE = (SOURCE / "docs/api.md").read_text()
SCHEMAS = json.loads((SOURCE / "src/server/openapi.json").read_text())["components"]["schemas"]
EXAMPLE = re.compile(r"```http(?: (\d+))?\n(\w+) (\S+)\n(.*?)```\n(?:```json\n(.*?)```)?", re.S)
EXAMPLES = [(int(status or 200), method, path, body, answer) for status, method, path, body, answer in EXAMPLE.findall(PAGE)]
TABLES = {"POST /v1/chat/completions": "ChatRequest", "POST /v1/completions": "CompletionRequest", "POST /v1/messages": "MessagesRequest", "POST /v1/responses": "ResponsesRequest"}


def contains(real, shown, at="answer"):
    if shown == "…":
        return
    if isinstance(shown, dict):
        assert isinstance(real, dict), at
        for key, value in shown.items():
            assert key in real, f"{at} has no {key}: {real}"
            contains(real[key], value, f"{at}.{key}")
    elif isinstance(shown, list):
        assert len(real) == len(shown), f"{at}: {real}"
        for i, value in enumerate(shown):
            contains(real[i], value, f"{at}[{i}]")
    elif isinstance(shown, str):
        assert isinstance(real, str) and real.strip() == shown, f"{at}: {real}"
    else:
        assert real == shown, f"{at}: {real}"


def test_there_are_examples_of_every_generating_route():
    assert {path for _, _, path, _, _ in EXAMPLES} >= {"/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/messages/count_tokens", "/v1/responses", "/v1/models", "/tokenize"}


@pytest.mark.parametrize("status, method, path, body, answer", EXAMPLES, ids=[f"{m} {p}" for _, m, p, _, _ in EXAMPLES])
def test_an_example(url, status, method, path, body, answer):
    got, _, reply = call(url, path, json.loads(body) if body.strip() else None, method=method)
    assert got == status, reply
    if answer:
        contains(json.loads(reply), json.loads(answer))


@pytest.mark.parametrize("heading", TABLES)
def test_a_table_names_every_field(heading):
    section = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(SCHEMAS[TABLES[heading]]["properties"])
