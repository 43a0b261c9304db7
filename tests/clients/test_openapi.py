"""/openapi.json against the code (routes, fields that are read) and against the running server (types, examples)."""

import json
import os
import pathlib
import re

import pytest

from test_raw import call

SOURCE = pathlib.Path(os.environ["GODWIT_SOURCE_DIR"]) / "src"
DOCUMENT = json.loads((SOURCE / "server/openapi.json").read_text())
SCHEMAS = DOCUMENT["components"]["schemas"]
ASK = [{"role": "user", "content": "Hi"}]
# Path, schema and the least body of the routes whose fields are checked.
ROUTES = {
    "/v1/chat/completions": ("ChatRequest", {"messages": ASK, "max_tokens": 2}),
    "/v1/completions": ("CompletionRequest", {"prompt": "Hi", "max_tokens": 2}),
    "/v1/messages": ("MessagesRequest", {"messages": ASK, "max_tokens": 2}),
    "/v1/responses": ("ResponsesRequest", {"input": "Hi", "max_output_tokens": 2}),
    "/tokenize": ("TokenizeRequest", {"prompt": "Hi"}),
    "/detokenize": ("DetokenizeRequest", {"tokens": [1]}),
}
FIELDS = [(path, name) for path, (schema, _) in ROUTES.items() for name in SCHEMAS[schema]["properties"]]
# Where the members of request bodies are read, and by which routes.
READERS = {
    "server/sampling_fields.cpp": ["ChatRequest", "CompletionRequest"],
    "server/chat_task.cpp": ["ChatRequest"],
    "server/tool_rules.cpp": ["ChatRequest"],
    "server/answer_format.cpp": ["ChatRequest"],
    "server/final_message.cpp": ["ChatRequest"],
    "server/chat_prompt.cpp": ["ChatRequest"],
    "server/completion_request.cpp": ["CompletionRequest"],
    "server/messages_chat.cpp": ["MessagesRequest"],
    "server/responses_chat.cpp": ["ResponsesRequest"],
    "server/responses_request.cpp": ["ResponsesRequest"],
    "chat/effort.cpp": ["ChatRequest"],
}


def test_the_server_sends_the_document(url):
    status, headers, body = call(url, "/openapi.json")
    assert status == 200 and headers["Content-Type"] == "application/json" and json.loads(body) == DOCUMENT


def test_every_route_is_described_and_every_described_route_exists():
    table = (SOURCE / "server/routes/route_table.cpp").read_text()
    code = {(method.lower(), path.replace("*", "{id}")) for method, path in re.findall(r'\{"([A-Z]+)", "(/[^"]*)", "', table)}
    described = {(method, path) for path, item in DOCUMENT["paths"].items() for method in item if method != "parameters"}
    assert code and code == described
    open_routes = {path for path in re.findall(r'"GET", "(/[^"]*)", "\w+", \w+, RouteAccess::open', table)}
    assert open_routes == {path for path, item in DOCUMENT["paths"].items() if item.get("get", {}).get("security") == []}


@pytest.mark.parametrize("file", READERS)
def test_every_field_the_code_reads_is_described(file):
    text = (SOURCE / file).read_text()
    read = set(re.findall(r'\b(?:fields|body)\.(?:any|has|string|object|array|boolean|number|integer|find)\(\s*"(\w+)"', text))
    read |= set(re.findall(r'\breal\("(\w+)"', text))
    for call_text in re.findall(r"pass_members\(body, \w+,\s*\{([^}]*)\}", text):
        read |= set(re.findall(r'"(\w+)"', call_text))
    assert read, "the pattern finds nothing any more"
    for schema in READERS[file]:
        assert not read - set(SCHEMAS[schema]["properties"]), f"{schema} lacks fields that {file} reads"


def test_the_fields_the_server_does_not_report_as_unknown_are_the_described_ones():
    text = (SOURCE / "server/known_fields.cpp").read_text()
    known = {name for block in re.findall(r"to_array<std::string_view>\(\{([^}]*)\}", text) for name in re.findall(r'"(\w+)"', block)}
    described = set(SCHEMAS["ChatRequest"]["properties"]) | set(SCHEMAS["CompletionRequest"]["properties"])
    assert known and known == described - {"extra_body"}  # which is gone once it has been merged


def test_refused_fields_are_the_ones_the_code_refuses():
    refused = set(re.findall(r'"(\w+)"', re.search(r"kFields = \{([^}]*)\}", (SOURCE / "server/unsupported.cpp").read_text()).group(1)))
    for schema in ("ChatRequest", "CompletionRequest"):
        marked = {name for name, field in SCHEMAS[schema]["properties"].items() if field.get("x-godwit") == "refused"}
        assert refused <= marked


def refusal(url, path, body):
    """Status and message of the answer."""
    status, _, reply = call(url, path, body)
    error = json.loads(reply).get("error", {}) if status >= 400 else {}
    return status, error.get("message", "")


@pytest.mark.parametrize("path, name", FIELDS)
def test_a_described_field_is_read(url, path, name):
    schema, least = ROUTES[path]
    field = SCHEMAS[schema]["properties"][name]
    kind = field.get("x-godwit")
    if kind == "ignored":
        for value in ("x", 7, [7], {"x": 7}):
            status, message = refusal(url, path, {**least, name: value})
            assert status == 200, message
        return
    if kind == "refused":
        value = True if name not in ("conversation", "prompt", "suffix") else "x"
        status, message = refusal(url, path, {**least, name: value})
        assert status == 400 and name in message
        return
    # A value of a wrong type is refused by name, so somebody looked at it.
    if name == "content":  # only read where there is no prompt
        least = {}
    for value in (7, "\u00a7", [[7]], {"\u00a7": 7}, True):
        status, message = refusal(url, path, {**least, name: value})
        if status in (400, 404) and re.match(rf"(the )?{name}\b", message):
            return
    raise AssertionError(f"{name} takes anything")


@pytest.mark.parametrize(
    "path, name, key",
    [
        (path, name, key)
        for path, (schema, _) in ROUTES.items()
        for name, field in SCHEMAS[schema]["properties"].items()
        for key in ("minimum", "exclusiveMinimum", "maximum")
        if key in field and not field.get("x-godwit")
    ],
)
def test_a_described_range_is_enforced(url, path, name, key):
    schema, least = ROUTES[path]
    bound = SCHEMAS[schema]["properties"][name][key]
    beyond = {"minimum": bound - 1, "exclusiveMinimum": bound, "maximum": bound + 1}[key]
    status, message = refusal(url, path, {**least, name: beyond})
    assert status == 400 and message.startswith(name), message
    if key != "exclusiveMinimum":  # the bound itself lies in the range; something else may still be wrong with it
        status, message = refusal(url, path, {**least, name: bound})
        assert not message.startswith(f"{name} must be "), message


@pytest.mark.parametrize(
    "path, name",
    [(path, name) for path, item in DOCUMENT["paths"].items() for name in item.get("post", {}).get("requestBody", {}).get("content", {}).get("application/json", {}).get("examples", {})],
)
def test_examples_are_answered_as_described(url, path, name):
    operation = DOCUMENT["paths"][path]["post"]
    body = operation["requestBody"]["content"]["application/json"]
    example = body["examples"][name]["value"]
    assert set(example) <= set(SCHEMAS[body["schema"]["$ref"].rsplit("/", 1)[1]]["properties"])
    status, headers, reply = call(url, path, example)
    assert str(status) in operation["responses"], reply
    kind = headers["Content-Type"].split(";")[0]
    assert kind in operation["responses"][str(status)]["content"]
    assert (kind == "text/event-stream") == bool(example.get("stream"))
