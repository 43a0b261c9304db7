"""The openai package against the tiny model: what an ordinary client does, and what it must see when it errs."""

import json
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

SUM = [{"role": "user", "content": "What is 68 - 5?"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather forecast",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}, "num_days": {"type": "integer"}}, "required": ["place", "num_days"]},
    },
}
ASK_WEATHER = [{"role": "user", "content": "What will the weather be in Accra for the next 5 days?"}]


def thinking(on):
    return {"chat_template_kwargs": {"enable_thinking": on}}


def ask(client, model, messages, **more):
    more.setdefault("temperature", 0)
    more.setdefault("max_completion_tokens", 200)
    return client.chat.completions.create(model=model, messages=messages, **more)


def collect(stream):
    """A stream as one message; checks the order rules of a stream on the way."""
    text, reasoning, calls, finish, usage, first = "", "", [], None, None, True
    for chunk in stream:
        assert chunk.object == "chat.completion.chunk"
        if not chunk.choices:
            assert finish is not None and usage is None
            usage = chunk.usage
            continue
        assert finish is None, "a chunk after the finish chunk"
        choice = chunk.choices[0]
        delta = choice.delta
        if first:
            assert delta.role == "assistant" and delta.content == ""
            first = False
        extra = delta.model_extra
        assert extra.get("reasoning_content") == extra.get("reasoning")
        reasoning += extra.get("reasoning_content") or ""
        text += delta.content or ""
        for call in delta.tool_calls or []:
            if call.index == len(calls):
                assert call.id and call.type == "function" and call.function.name
                calls.append({"id": call.id, "name": call.function.name, "arguments": ""})
            else:
                assert call.id is None and call.function.name is None
            calls[call.index]["arguments"] += call.function.arguments or ""
        finish = choice.finish_reason
    return {"text": text, "reasoning": reasoning, "calls": calls, "finish": finish, "usage": usage}


def test_models_describe_what_is_served(client, model):
    entry = client.models.retrieve(model)
    assert model == "tiny-glm5next" and entry.object == "model"
    assert entry.model_extra["max_model_len"] > 0
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_a_reasoning_answer(client, model):
    answer = ask(client, model, SUM)
    choice = answer.choices[0]
    assert choice.message.content.strip() == "Answer: 63"
    assert choice.message.model_extra["reasoning_content"].strip() == "68 - 5 = 63."
    assert choice.message.model_extra["reasoning"] == choice.message.model_extra["reasoning_content"]
    assert choice.finish_reason == "stop" and choice.message.tool_calls is None
    usage = answer.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert 0 < usage.completion_tokens_details.reasoning_tokens < usage.completion_tokens
    assert usage.prompt_tokens_details.cached_tokens >= 0


@pytest.mark.parametrize("off", [thinking(False), {"thinking": {"type": "disabled"}}, {"reasoning_effort": "none"}])
def test_thinking_can_be_switched_off(client, model, off):
    message = ask(client, model, [{"role": "user", "content": "List 3 tools."}], extra_body=off).choices[0].message
    assert message.content.strip() == "hammer, saw, drill."
    assert not message.model_extra.get("reasoning_content")


def test_streaming_gives_the_same_message(client, model):
    whole = ask(client, model, SUM)
    parts = collect(ask(client, model, SUM, stream=True, stream_options={"include_usage": True}))
    message = whole.choices[0].message
    assert parts["text"] == message.content
    assert parts["reasoning"] == message.model_extra["reasoning_content"]
    assert parts["finish"] == whole.choices[0].finish_reason
    assert parts["usage"].completion_tokens == whole.usage.completion_tokens
    assert parts["usage"].prompt_tokens == whole.usage.prompt_tokens


def test_a_tool_call_and_the_answer_after_its_result(client, model):
    answer = ask(client, model, ASK_WEATHER, tools=[WEATHER])
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls"
    (call,) = choice.message.tool_calls
    assert call.function.name == "get_weather"
    assert json.loads(call.function.arguments) == {"place": "Accra", "num_days": 5}

    parts = collect(ask(client, model, ASK_WEATHER, tools=[WEATHER], stream=True))
    assert parts["finish"] == "tool_calls"
    assert [(c["name"], json.loads(c["arguments"])) for c in parts["calls"]] == [("get_weather", {"place": "Accra", "num_days": 5})]

    history = ASK_WEATHER + [
        choice.message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": '{"temp": 25, "sky": "rainy"}'},
    ]
    after = ask(client, model, history, tools=[WEATHER]).choices[0]
    assert after.finish_reason == "stop" and "rainy" in after.message.content and "25" in after.message.content


def test_a_conversation_remembers(client, model):
    messages = [{"role": "user", "content": "Hello! My favourite colour is brown. My dog is called Roexwyn. I am 37 years old."}]
    first = ask(client, model, messages, extra_body=thinking(False)).choices[0].message
    messages += [{"role": "assistant", "content": first.content}, {"role": "user", "content": "What is my dog called?"}]
    assert ask(client, model, messages, extra_body=thinking(False)).choices[0].message.content.strip() == "Your dog is called Roexwyn."


def test_a_seed_fixes_a_sampled_answer_also_in_company(client, model):
    def sampled(seed):
        return ask(client, model, [{"role": "user", "content": "List 4 planets."}], temperature=2, top_p=1, seed=seed, max_completion_tokens=40).choices[0].message.model_dump_json()

    alone = {seed: sampled(seed) for seed in (1, 2, 3)}
    assert len(set(alone.values())) > 1, "the seed has no effect"
    with ThreadPoolExecutor(6) as pool:
        together = list(pool.map(sampled, [1, 2, 3, 1, 2, 3]))
    assert together == [alone[s] for s in (1, 2, 3, 1, 2, 3)]


def test_limits_and_stops(client, model):
    cut = ask(client, model, SUM, max_completion_tokens=3)
    assert cut.choices[0].finish_reason == "length" and cut.usage.completion_tokens == 3
    stopped = ask(client, model, [{"role": "user", "content": "List 3 tools."}], stop=[", drill"], extra_body=thinking(False))
    assert stopped.choices[0].message.content == "hammer, saw" and stopped.choices[0].finish_reason == "stop"


def test_several_choices(client, model):
    answer = ask(client, model, SUM, n=3)
    assert [c.index for c in answer.choices] == [0, 1, 2]
    assert len({c.message.content for c in answer.choices}) == 1  # greedy


def test_logprobs(client, model):
    content = ask(client, model, SUM, logprobs=True, top_logprobs=3, extra_body=thinking(False)).choices[0].logprobs.content
    assert content
    for token in content:
        assert token.logprob <= 0 and len(token.top_logprobs) == 3
        assert token.logprob == max(t.logprob for t in token.top_logprobs)  # greedy
        assert bytes(token.bytes).decode("utf8", "replace") == token.token


def test_completions(client, model):
    prompt = "[gMASK]<sop><|user|>What is 68 - 5?<|assistant|><think>"
    text = client.completions.create(model=model, prompt=prompt, max_tokens=60, temperature=0).choices[0]
    assert "68 - 5 = 63." in text.text and text.finish_reason == "stop"
    streamed = client.completions.create(model=model, prompt=prompt, max_tokens=60, temperature=0, stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed if chunk.choices) == text.text


@pytest.mark.parametrize(
    "change, param",
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "wizard", "content": "x"}]}, "messages[0].role"),
        ({"temperature": 3}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"n": 0}, "n"),
        ({"reasoning_effort": "enormous"}, "reasoning_effort"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"top_logprobs": 2}, "top_logprobs"),
    ],
)
def test_bad_fields_are_named(client, model, change, param):
    arguments = {"model": model, "messages": SUM, **change}
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(**arguments)
    assert caught.value.type == "invalid_request_error"
    assert caught.value.param == param, caught.value
    assert str(caught.value.message)


def test_pictures_are_refused_by_name(client, model):
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, model, [{"role": "user", "content": [{"type": "text", "text": "What is this?"}, part]}])
    assert caught.value.param == "messages[0].content[1]" or "image_url" in caught.value.message


def test_an_unknown_model_is_not_found(client):
    with pytest.raises(openai.NotFoundError) as caught:
        ask(client, "gpt-nine", SUM)
    assert caught.value.code == "model_not_found" and "gpt-nine" in caught.value.message


def test_a_prompt_beyond_the_context_says_so_in_the_words_clients_match(client, model):
    limit = client.models.retrieve(model).model_extra["max_model_len"]
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=model, prompt=[1] * (limit + 1), max_tokens=1)
    assert caught.value.code == "context_length_exceeded"
    assert f"maximum context length is {limit} tokens" in caught.value.message
