"""The anthropic package against the tiny model: what Claude Code and its like rely on."""

import json

import anthropic
import pytest

SUM = [{"role": "user", "content": "What is 68 - 5?"}]
ASK_WEATHER = [{"role": "user", "content": "What will the weather be in Accra for the next 5 days?"}]
WEATHER = {
    "name": "get_weather",
    "description": "Get the weather forecast",
    "input_schema": {"type": "object", "properties": {"place": {"type": "string"}, "num_days": {"type": "integer"}}, "required": ["place", "num_days"]},
}
THINK = {"type": "enabled", "budget_tokens": 1024}


@pytest.fixture(scope="session")
def claude(url):
    return anthropic.Anthropic(base_url=url, api_key="none", max_retries=0, timeout=60)


def ask(claude, model, messages, **more):
    more.setdefault("extra_body", {"temperature": 0})
    more.setdefault("max_tokens", 200)
    return claude.messages.create(model=model, messages=messages, **more)


def streamed(claude, model, messages, **more):
    """The events of a stream and the message that the package builds of them."""
    more.setdefault("max_tokens", 200)
    with claude.messages.stream(model=model, messages=messages, extra_body={"temperature": 0}, **more) as stream:
        events = list(stream)
        return events, stream.get_final_message()


def blocks(message):
    return [block.model_dump(exclude={"id", "signature"}, exclude_none=True) for block in message.content]


def test_an_answer_shows_thinking_only_when_asked(claude, model):
    plain = ask(claude, model, SUM)
    assert [b.type for b in plain.content] == ["text"] and plain.content[0].text.strip() == "Answer: 63"
    assert (plain.type, plain.role, plain.model) == ("message", "assistant", model)
    assert plain.stop_reason == "end_turn" and plain.stop_sequence is None
    thought = ask(claude, model, SUM, thinking=THINK)
    assert [b.type for b in thought.content] == ["thinking", "text"]
    assert thought.content[0].thinking.strip() == "68 - 5 = 63." and thought.content[0].signature
    assert thought.usage.output_tokens == plain.usage.output_tokens
    off = ask(claude, model, SUM, thinking={"type": "disabled"})
    assert off.usage.output_tokens < plain.usage.output_tokens


@pytest.mark.parametrize("more", [{}, {"thinking": THINK}, {"thinking": {"type": "adaptive"}, "tools": [WEATHER]}])
@pytest.mark.parametrize("messages", [SUM, ASK_WEATHER])
def test_a_stream_builds_the_same_message(claude, model, messages, more):
    whole = ask(claude, model, messages, **more)
    events, built = streamed(claude, model, messages, **more)
    assert blocks(built) == blocks(whole)
    assert (built.stop_reason, built.stop_sequence) == (whole.stop_reason, whole.stop_sequence)
    assert built.usage.output_tokens == whole.usage.output_tokens
    start = next(e for e in events if e.type == "message_start").message
    counted = claude.messages.count_tokens(model=model, messages=messages, **more).input_tokens
    assert start.usage.input_tokens + start.usage.cache_read_input_tokens == counted
    assert events[-1].type == "message_stop"


def test_a_tool_is_called_and_its_result_read(claude, model):
    answer = ask(claude, model, ASK_WEATHER, tools=[WEATHER], thinking=THINK)
    assert answer.stop_reason == "tool_use"
    use = answer.content[-1]
    assert (use.type, use.name, use.input) == ("tool_use", "get_weather", {"place": "Accra", "num_days": 5})
    # The whole answer goes back, thinking and signature included.
    history = ASK_WEATHER + [
        {"role": "assistant", "content": answer.content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": '{"temp": 25, "sky": "rainy"}'}]},
    ]
    after = ask(claude, model, history, tools=[WEATHER])
    assert after.stop_reason == "end_turn" and "rainy" in after.content[0].text and "25" in after.content[0].text


def test_tool_choice(claude, model):
    none = ask(claude, model, ASK_WEATHER, tools=[WEATHER], tool_choice={"type": "none"})
    assert none.stop_reason != "tool_use" and all(b.type != "tool_use" for b in none.content)
    auto = ask(claude, model, ASK_WEATHER, tools=[WEATHER], tool_choice={"type": "auto", "disable_parallel_tool_use": True})
    assert [b.type for b in auto.content].count("tool_use") == 1


def test_a_stop_sequence_is_named(claude, model):
    answer = ask(claude, model, [{"role": "user", "content": "List 3 tools."}], stop_sequences=[", drill"], thinking={"type": "disabled"})
    assert answer.content[0].text == "hammer, saw"
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", ", drill")


def test_max_tokens_ends_it(claude, model):
    answer = ask(claude, model, SUM, max_tokens=3, thinking=THINK)
    assert answer.stop_reason == "max_tokens" and answer.usage.output_tokens == 3


def test_a_conversation_is_cached(claude, model):
    system = [{"type": "text", "text": "You answer questions. " * 40, "cache_control": {"type": "ephemeral"}}]
    ask(claude, model, SUM, system=system)
    again = ask(claude, model, SUM, system=system)
    assert again.usage.cache_read_input_tokens > 0
    total = claude.messages.count_tokens(model=model, messages=SUM, system=system).input_tokens
    assert again.usage.input_tokens + again.usage.cache_read_input_tokens == total


def test_what_claude_code_sends_is_taken(claude, model):
    answer = claude.beta.messages.create(
        model=model,
        max_tokens=200,
        system=[{"type": "text", "text": "x-anthropic-billing-header: cc_version=1"}, {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        messages=[{"role": "user", "content": [{"type": "text", "text": "What is 68 - 5?", "cache_control": {"type": "ephemeral"}}]}],
        tools=[WEATHER, {"type": "web_search_20250305", "name": "web_search"}],
        metadata={"user_id": "u"},
        extra_body={"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}, "context_management": {"edits": []}},
        betas=["interleaved-thinking-2025-05-14"],
    )
    assert answer.content[-1].type in ("text", "tool_use")


def test_errors_are_the_package_s_own(claude, model):
    with pytest.raises(anthropic.BadRequestError) as caught:
        ask(claude, model, [{"role": "user", "content": [{"type": "hologram"}]}])
    assert caught.value.body["error"]["type"] == "invalid_request_error"
    assert "messages[0].content[0].type" in caught.value.body["error"]["message"]
    assert caught.value.body["request_id"] == caught.value.response.headers["x-request-id"]
    with pytest.raises(anthropic.NotFoundError):
        ask(claude, "claude-nine", SUM)
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    with pytest.raises(anthropic.BadRequestError) as caught:
        ask(claude, model, [{"role": "user", "content": [picture]}])
    assert "messages[0].content[0]" in str(caught.value)


def test_a_prompt_beyond_the_context_is_said_in_the_words_that_trigger_compaction(claude, model, client):
    limit = client.models.retrieve(model).model_extra["max_model_len"]
    with pytest.raises(anthropic.BadRequestError) as caught:
        ask(claude, model, [{"role": "user", "content": "hello world " * limit}])
    assert f" tokens > {limit} maximum" in str(caught.value) and "prompt is too long: " in str(caught.value)


def test_models(claude, model):
    listed = claude.models.list()
    assert [m.id for m in listed.data] == [model] and listed.data[0].type == "model" and not listed.has_more
    assert claude.models.retrieve(model).display_name == model
    with pytest.raises(anthropic.NotFoundError):
        claude.models.retrieve("other")
    json.dumps(listed.data[0].model_dump(mode="json"))
