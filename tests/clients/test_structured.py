"""Structured output through the openai package: parsed answers, forced and strict tools, budgets, prefill."""

import json
from enum import Enum

import openai
import pytest
from pydantic import BaseModel, Field
from test_openai import ASK_WEATHER, SUM, WEATHER, ask, collect, thinking


class Unit(str, Enum):
    metric = "metric"
    imperial = "imperial"


class Day(BaseModel):
    label: str = Field(max_length=12)
    high: int = Field(ge=-60, le=60)


class Report(BaseModel):
    place: str = Field(min_length=1, max_length=20)
    unit: Unit
    days: list[Day] = Field(min_length=1, max_length=3)
    note: str | None = Field(max_length=10)


SCHEMA = {"type": "object", "properties": {"answer": {"type": "integer"}, "sure": {"type": "boolean"}}, "required": ["answer", "sure"], "additionalProperties": False}


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_parse_gives_a_pydantic_object(client, model, seed):
    sampled = {"temperature": 0} if seed is None else {"temperature": 1.2, "seed": seed}
    answer = client.chat.completions.parse(model=model, messages=ASK_WEATHER, response_format=Report, max_completion_tokens=600, extra_body={"thinking_token_budget": 60}, **sampled)
    choice = answer.choices[0]
    assert choice.finish_reason == "stop"
    report = choice.message.parsed
    assert isinstance(report, Report) and 1 <= len(report.days) <= 3
    assert choice.message.model_extra["reasoning_content"] and "{" != choice.message.model_extra["reasoning_content"][0]


def test_a_streamed_schema_is_the_same_document(client, model):
    form = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA}}
    whole = ask(client, model, SUM, response_format=form).choices[0].message
    parts = collect(ask(client, model, SUM, response_format=form, stream=True))
    assert parts["text"] == whole.content and parts["reasoning"] == whole.model_extra["reasoning_content"]
    document = json.loads(whole.content)
    assert set(document) == {"answer", "sure"} and type(document["answer"]) is int and type(document["sure"]) is bool


def test_json_object_without_thinking(client, model):
    content = ask(client, model, SUM, response_format={"type": "json_object"}, extra_body=thinking(False), max_completion_tokens=500).choices[0]
    if content.finish_reason == "stop":
        assert isinstance(json.loads(content.message.content), dict)
    assert content.message.content.lstrip().startswith("{")


@pytest.mark.parametrize(
    "extra, allowed",
    [
        ({"guided_choice": ["north", "south"]}, ["north", "south"]),
        ({"structured_outputs": {"choice": ["yes", "no"]}}, ["yes", "no"]),
        ({"guided_regex": "A[0-9]{2}"}, [f"A{n:02}" for n in range(100)]),
        ({"guided_json": {"enum": [1, None, "x"]}}, ["1", "null", '"x"']),
    ],
)
def test_extensions_in_both_routes(client, model, extra, allowed):
    chat = ask(client, model, SUM, extra_body={**extra, **thinking(False)}).choices[0]
    assert chat.message.content.strip() in allowed and chat.finish_reason == "stop"
    raw = client.completions.create(model=model, prompt="The answer is", max_tokens=50, temperature=1, seed=3, extra_body=extra).choices[0]
    assert raw.text.strip() in allowed and raw.finish_reason == "stop"


def test_an_unsupported_keyword_is_named_before_anything_is_generated(client, model):
    schema = {"type": "object", "properties": {"a": {"type": "string", "propertyNames": {}}}}
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, model, SUM, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})
    assert caught.value.param == "response_format.json_schema.schema"
    assert "propertyNames" in caught.value.message and "#/properties/a" in caught.value.message


def call_of(choice):
    (call,) = choice.message.tool_calls
    return call.function.name, json.loads(call.function.arguments)


@pytest.mark.parametrize("messages", [SUM, ASK_WEATHER])
def test_required_calls(client, model, messages):
    choice = ask(client, model, messages, tools=[WEATHER], tool_choice="required", parallel_tool_calls=False).choices[0]
    assert choice.finish_reason == "tool_calls" and not choice.message.content
    name, arguments = call_of(choice)
    assert name == "get_weather" and set(arguments) == {"place", "num_days"}
    assert isinstance(arguments["place"], str) and isinstance(arguments["num_days"], int)


def test_a_named_call_streamed(client, model):
    other = {"type": "function", "function": {"name": "pick", "parameters": {"type": "object", "properties": {"side": {"enum": ["left", "right"]}}, "required": ["side"], "additionalProperties": False}}}
    choice = {"type": "function", "function": {"name": "pick"}}
    parts = collect(ask(client, model, SUM, tools=[WEATHER, other], tool_choice=choice, parallel_tool_calls=False, stream=True))
    assert parts["finish"] == "stop"  # OpenAI's word for a named call
    (call,) = parts["calls"]
    assert call["name"] == "pick" and json.loads(call["arguments"])["side"] in ("left", "right")


def test_auto_without_a_grammar_still_calls_by_itself(client, model):
    choice = ask(client, model, ASK_WEATHER, tools=[WEATHER], tool_choice="auto").choices[0]
    assert call_of(choice) == ("get_weather", {"place": "Accra", "num_days": 5})


def test_strict_tools_under_auto(client, model):
    strict = json.loads(json.dumps(WEATHER))
    strict["function"]["strict"] = True
    strict["function"]["parameters"]["additionalProperties"] = False
    choice = ask(client, model, ASK_WEATHER, tools=[strict]).choices[0]
    assert call_of(choice) == ("get_weather", {"place": "Accra", "num_days": 5})
    assert ask(client, model, SUM, tools=[strict]).choices[0].message.content.strip() == "Answer: 63"


def test_no_call_when_tools_are_off(client, model):
    message = ask(client, model, ASK_WEATHER, tools=[WEATHER], tool_choice="none", max_completion_tokens=60).choices[0].message
    assert message.tool_calls is None and "<tool_call>" not in (message.content or "")


@pytest.mark.parametrize("budget", [1, 4])
def test_a_thinking_budget_closes_the_block(client, model, budget):
    answer = ask(client, model, SUM, extra_body={"thinking": {"type": "enabled", "budget_tokens": budget}})
    assert answer.usage.completion_tokens_details.reasoning_tokens == budget
    assert answer.choices[0].message.content


@pytest.mark.parametrize("how", [{"continue_final_message": True}, {"add_generation_prompt": False}])
def test_a_final_message_is_continued(client, model, how):
    question = [{"role": "user", "content": "List 3 tools."}]
    message = ask(client, model, question + [{"role": "assistant", "content": "hammer, saw"}], extra_body=how).choices[0].message
    assert message.content == ", drill." and not message.model_extra["reasoning_content"]
    thought = ask(client, model, SUM + [{"role": "assistant", "content": "<think>68 - 5 = 6"}], extra_body=how).choices[0].message
    assert thought.model_extra["reasoning_content"] == "3." and thought.content.strip() == "Answer: 63"
