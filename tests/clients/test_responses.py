"""The openai package's responses against the tiny model: create, stream, tools, going on from a stored response."""

import json

import openai
import pytest

ASK_WEATHER = "What will the weather be in Accra for the next 5 days?"
WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Get the weather forecast",
    "strict": False,
    "parameters": {"type": "object", "properties": {"place": {"type": "string"}, "num_days": {"type": "integer"}}, "required": ["place", "num_days"]},
}


def ask(client, model, given, **more):
    return client.responses.create(model=model, input=given, temperature=0, **more)


def test_an_answer(client, model):
    answer = ask(client, model, "What is 68 - 5?")
    assert answer.status == "completed" and answer.output_text.strip() == "Answer: 63"
    assert [item.type for item in answer.output] == ["reasoning", "message"]
    assert answer.output[0].content[0].text.strip() == "68 - 5 = 63."
    usage = answer.usage
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    assert 0 < usage.output_tokens_details.reasoning_tokens < usage.output_tokens


@pytest.mark.parametrize("given, more", [("What is 68 - 5?", {}), (ASK_WEATHER, {"tools": [WEATHER]}), ("What is 68 - 5?", {"max_output_tokens": 4})])
def test_a_stream_builds_the_same_response(client, model, given, more):
    whole = ask(client, model, given, **more)
    events = list(ask(client, model, given, stream=True, **more))
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert [e.type for e in events[:2]] == ["response.created", "response.in_progress"]
    last = events[-1]
    assert last.type == "response." + whole.status
    strip = {"output": {"__all__": {"id", "call_id"}}}
    assert last.response.model_dump(include={"output"}, exclude=strip) == whole.model_dump(include={"output"}, exclude=strip)
    assert last.response.usage.output_tokens == whole.usage.output_tokens
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert text == whole.output_text
    arguments = "".join(e.delta for e in events if e.type == "response.function_call_arguments.delta")
    assert arguments == "".join(i.arguments for i in whole.output if i.type == "function_call")


def test_the_package_s_own_stream_helper_understands_the_events(client, model):
    with client.responses.stream(model=model, input="What is 68 - 5?", temperature=0) as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_text.strip() == "Answer: 63"


def test_a_tool_and_its_result_with_and_without_the_store(client, model):
    first = ask(client, model, ASK_WEATHER, tools=[WEATHER])
    call = next(item for item in first.output if item.type == "function_call")
    assert json.loads(call.arguments) == {"place": "Accra", "num_days": 5}
    result = {"type": "function_call_output", "call_id": call.call_id, "output": '{"temp": 25, "sky": "rainy"}'}
    stored = ask(client, model, [result], tools=[WEATHER], previous_response_id=first.id)
    assert "rainy" in stored.output_text and stored.previous_response_id == first.id
    history = [{"role": "user", "content": ASK_WEATHER}, *[item.model_dump(exclude_none=True) for item in first.output], result]
    replayed = ask(client, model, history, tools=[WEATHER], store=False)
    assert replayed.output_text == stored.output_text


def test_stored_responses_come_back_until_they_are_deleted(client, model):
    made = ask(client, model, "What is 68 - 5?", metadata={"k": "v"})
    found = client.responses.retrieve(made.id)
    assert found.output_text == made.output_text and found.metadata == {"k": "v"}
    client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)
    with pytest.raises(openai.NotFoundError) as caught:
        ask(client, model, "more", previous_response_id=made.id)
    assert caught.value.param == "previous_response_id"


@pytest.mark.parametrize(
    "change, param",
    [
        ({"background": True}, "background"),
        ({"tools": [{"name": "search"}]}, "tools[0].type"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:,", "detail": "auto"}]}]}, "input[0].content[0]"),
        ({"reasoning": {"effort": "enormous"}}, "reasoning.effort"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
    ],
)
def test_bad_fields_are_named(client, model, change, param):
    with pytest.raises(openai.BadRequestError) as caught:
        client.responses.create(**{"model": model, "input": "Hi", **change})
    assert caught.value.param == param
