"""What a client gets from the prefix cache of a running server: shares counted by /metrics, time to first token by its own clock."""

import json
import re
import statistics
import time
import urllib.error
import urllib.request

import pytest
from conftest import Server

PAGE = 64
TURNS = 12
WORDS = "The river carries small boats past old mills while bells count slow hours over quiet fields".split()


@pytest.fixture(scope="module")
def own():
    """A server of its own: the counters are of these requests alone."""
    running = Server("--context", "16384").wait_ready()
    yield running
    assert running.stop() == 0, running.log()


def post(server, path, body=None):
    request = urllib.request.Request(server.url + path, data=json.dumps(body).encode() if body else b"", method="POST")
    with urllib.request.urlopen(request, timeout=120) as reply:
        return json.load(reply)


def metrics(server):
    with urllib.request.urlopen(server.url + "/metrics", timeout=30) as reply:
        text = reply.read().decode()
    return {name: float(value) for name, value in re.findall(r"^(godwit_\w+(?:\{[^}]*\})?) (\S+)$", text, re.M)}


def common(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def flush(server):
    return post(server, "/flush_cache")


def first_token_s(server, prompt):
    body = json.dumps({"prompt": prompt, "max_tokens": 4, "temperature": 0, "stream": True, "ignore_eos": True}).encode()
    request = urllib.request.Request(server.url + "/v1/completions", data=body, method="POST")
    begin = time.perf_counter()
    with urllib.request.urlopen(request, timeout=120) as reply:
        for line in reply:
            if line.startswith(b"data: {"):
                taken = time.perf_counter() - begin
                reply.read()
                return taken
    raise AssertionError("no token came")


@pytest.mark.parametrize("thinking", [False, True])
def test_a_chat_that_replays_its_history_hits_what_it_can(own, thinking):
    """Replayable: tokens that an earlier request of this chat prefilled with the same ids, rounded down to whole pages."""
    flush(own)
    options = {"chat_template_kwargs": {"enable_thinking": thinking}}
    messages, prompts = [], []
    replayable = 0
    before = metrics(own)
    for turn in range(TURNS):
        messages.append({"role": "user", "content": " ".join(WORDS[(turn + i) % len(WORDS)] for i in range(40 + 7 * turn))})
        ids = post(own, "/tokenize", {"messages": messages, **options})["tokens"]
        replayable += max((common(ids, earlier) // PAGE * PAGE for earlier in prompts), default=0)
        prompts.append(ids)
        answer = post(own, "/v1/chat/completions", {"messages": messages, "max_tokens": 60, "temperature": 0, **options})
        assert answer["usage"]["prompt_tokens"] == len(ids)
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == answer["prefix_cache"]["cached_tokens"]
        message = answer["choices"][0]["message"]
        messages.append({k: v for k, v in message.items() if v and k in ("role", "content", "reasoning_content")})
        messages[-1].setdefault("content", "")
    after = metrics(own)
    hits = after["godwit_cached_tokens_total"] - before["godwit_cached_tokens_total"]
    asked = after["godwit_prompt_tokens_total"] - before["godwit_prompt_tokens_total"]
    print(f"thinking {thinking}: {hits:.0f} of {replayable} replayable tokens hit, {asked:.0f} asked for")
    assert asked == sum(len(p) for p in prompts)
    assert replayable > 0.5 * asked, "the chat replays too little to say anything"
    assert hits >= 0.95 * replayable


def test_a_4k_prompt_starts_five_times_faster_the_second_time(own):
    cold, warm = [], []
    for round_ in range(3):
        prompt = " ".join(WORDS[(round_ + i * i) % len(WORDS)] for i in range(6000))
        count = post(own, "/tokenize", {"prompt": prompt})["count"]
        prompt = prompt[: len(prompt) * 4096 // count]
        flush(own)
        cold.append(first_token_s(own, prompt))
        warm.append(first_token_s(own, prompt))
    print(f"first token cold {statistics.median(cold) * 1e3:.1f} ms, cached {statistics.median(warm) * 1e3:.1f} ms")
    assert statistics.median(cold) >= 5 * statistics.median(warm)


def test_a_miss_says_why(own):
    flush(own)
    text = " ".join(WORDS) * 20

    def ask(prompt):
        return post(own, "/v1/completions", {"prompt": prompt, "max_tokens": 2, "temperature": 0})["prefix_cache"]

    before = metrics(own)
    assert ask("The")["miss"] == "too_short"
    assert ask(text)["miss"] in ("first_difference", "evicted")  # an earlier test may have had the first block
    hit = ask(text)
    assert hit["miss"] == "none" and hit["cached_tokens"] > 0
    other = ask("Different " + text)
    assert other["miss"] == "first_difference" and 0 <= other["first_difference_at"] < PAGE
    freed = flush(own)
    assert freed["pages"] > 0 and freed["snapshots"] > 0
    assert ask(text)["miss"] == "evicted"
    after = metrics(own)
    for reason, least in (("too_short", 1), ("first_difference", 1), ("evicted", 1)):
        name = f'godwit_prefix_misses_total{{reason="{reason}"}}'
        assert after[name] - before[name] >= least


def test_a_deadline_ends_a_request_with_408(own):
    body = {"prompt": "The", "max_tokens": 15000, "temperature": 0, "ignore_eos": True, "timeout_ms": 300}
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(own, "/v1/completions", body)
    assert refused.value.code == 408
    assert "deadline" in json.load(refused.value)["error"]["message"]
