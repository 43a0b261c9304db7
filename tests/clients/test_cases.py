"""Public failures of api_cases.md that show only with a real engine behind the API, by their numbers."""

import json

import pytest

from test_raw import call

SUM = [{"role": "user", "content": "What is 68 - 5?"}]
ASK_WEATHER = [{"role": "user", "content": "What will the weather be in Accra for the next 5 days?"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}, "num_days": {"type": "integer"}}, "required": ["place", "num_days"], "additionalProperties": False},
    },
}
NAMED = {"type": "function", "function": {"name": "get_weather"}}
PERSON = {"type": "json_schema", "json_schema": {"name": "p", "schema": {"type": "object", "properties": {"answer": {"type": "boolean"}}, "required": ["answer"], "additionalProperties": False}}}


def ask(url, messages, **more):
    status, _, reply = call(url, "/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 300, **more})
    assert status == 200, reply
    return json.loads(reply)


def test_c29_a_budget_closes_the_thinking(url):
    free = ask(url, SUM)["usage"]["completion_tokens_details"]["reasoning_tokens"]
    answer = ask(url, SUM, thinking_token_budget=3)
    assert free > 3 and answer["usage"]["completion_tokens_details"]["reasoning_tokens"] == 3
    status, _, reply = call(url, "/v1/messages", {"messages": SUM, "max_tokens": 100, "thinking": {"type": "enabled", "budget_tokens": 3}})
    assert status == 200 and json.loads(reply)["content"][0]["type"] == "thinking"
    # Without a budget a limit inside the thinking is said honestly.
    cut = ask(url, SUM, max_tokens=3)
    assert cut["choices"][0]["finish_reason"] == "length" and cut["choices"][0]["message"]["content"] == ""
    assert cut["usage"]["completion_tokens_details"]["reasoning_tokens"] == 3


@pytest.mark.parametrize("choice", ["required", NAMED])
@pytest.mark.parametrize("messages", [ASK_WEATHER, SUM])
def test_c40_c41_c82_a_forced_call_comes_after_the_thinking_and_ends(url, messages, choice):
    answer = ask(url, messages, tools=[WEATHER], tool_choice=choice)
    message = answer["choices"][0]["message"]
    assert message["reasoning_content"], "the thinking must stay free"
    assert answer["choices"][0]["finish_reason"] != "length"
    arguments = json.loads(message["tool_calls"][0]["function"]["arguments"])
    assert set(arguments) == {"place", "num_days"} and isinstance(arguments["num_days"], int)
    assert not message["content"]


def test_c41_anthropic_s_any_and_tool_force_a_call_too(url):
    tool = {"name": "get_weather", "input_schema": WEATHER["function"]["parameters"]}
    for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"}):
        status, _, reply = call(url, "/v1/messages", {"messages": SUM, "max_tokens": 300, "temperature": 0, "tools": [tool], "tool_choice": choice})
        answer = json.loads(reply)
        assert status == 200 and answer["stop_reason"] == "tool_use", answer
        assert answer["content"][-1]["type"] == "tool_use" and set(answer["content"][-1]["input"]) == {"place", "num_days"}
    status, _, reply = call(url, "/v1/responses", {"input": "What is 68 - 5?", "tools": [{"type": "function", **WEATHER["function"]}], "tool_choice": {"type": "function", "name": "get_weather"}})
    assert status == 200 and json.loads(reply)["output"][-1]["type"] == "function_call"


def test_c38_a_format_holds_for_the_content_and_leaves_the_thinking_free(url):
    answer = ask(url, SUM, response_format=PERSON)["choices"][0]["message"]
    assert answer["reasoning_content"] and set(json.loads(answer["content"])) == {"answer"}
    status, _, reply = call(url, "/v1/responses", {"input": "What is 68 - 5?", "text": {"format": {"type": "json_schema", "name": "p", "schema": PERSON["json_schema"]["schema"]}}})
    content = json.loads(reply)["output"][-1]["content"][0]["text"]
    assert status == 200 and set(json.loads(content)) == {"answer"}
    status, _, reply = call(url, "/v1/messages", {"messages": SUM, "max_tokens": 200, "output_config": {"format": {"type": "json_schema", "schema": PERSON["json_schema"]["schema"]}}})
    assert status == 200 and set(json.loads(json.loads(reply)["content"][-1]["text"])) == {"answer"}


def test_c80_a_forced_call_wins_over_a_format(url):
    answer = ask(url, ASK_WEATHER, tools=[WEATHER], tool_choice=NAMED, response_format={"type": "json_object"})
    assert json.loads(answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"])


def test_c44_every_event_is_one_document_on_one_line(url):
    text = "line one\nline two\r\n\u2028 \" \\ \u00e9 \U0001f600 \x7f"
    for path, body in [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": text}]}),
        ("/v1/messages", {"messages": [{"role": "user", "content": text}], "thinking": {"type": "adaptive"}}),
        ("/v1/responses", {"input": text, "instructions": text}),
    ]:
        limit = "max_output_tokens" if "responses" in path else "max_tokens"
        status, _, reply = call(url, path, {**body, limit: 60, "stream": True, "temperature": 2})
        assert status == 200 and reply.endswith(b"\n\n")
        for event in reply.decode().split("\n\n")[:-1]:
            lines = event.split("\n")
            data = [line[6:] for line in lines if line.startswith("data: ")]
            assert len(data) == 1 and all(line.startswith(("data: ", "event: ", ":")) for line in lines)
            assert data[0] == "[DONE]" or json.loads(data[0])


def test_c74_the_thinking_is_never_shown_as_text_with_half_of_its_tags(url):
    for message in (ask(url, SUM)["choices"][0]["message"], ask(url, SUM, include_reasoning=False)["choices"][0]["message"]):
        assert "think>" not in message["content"] and "think>" not in (message["reasoning_content"] or "")
