"""/v1/completions as evaluations use it: log probabilities of a given text, and what only this route has."""

import json
import math
import urllib.request

PROMPT = "[gMASK]<sop><|user|>What is 68 - 5?<|assistant|><think>68 - 5 = 63.</think>Answer: 63"


def score(client, model, prompt, **more):
    """lm-eval's request for log likelihoods."""
    arguments = {"model": model, "prompt": prompt, "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": True, **more}
    return client.completions.create(**arguments).choices


def tokens_of(url, text):
    request = urllib.request.Request(url + "/tokenize", json.dumps({"prompt": text}).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["tokens"]


def test_log_likelihoods_of_a_batch_of_ids(client, url, model):
    texts = [PROMPT, PROMPT + "3", "one two three", "x"]
    prompts = [tokens_of(url, text) for text in texts]
    choices = score(client, model, prompts)
    assert [c.index for c in choices] == [0, 1, 2, 3]
    for choice, text, ids in zip(choices, texts, prompts):
        logprobs = choice.logprobs
        assert choice.text.startswith(text)
        assert len(logprobs.tokens) == len(logprobs.token_logprobs) == len(logprobs.top_logprobs) == len(ids) + 1
        assert logprobs.token_logprobs[0] is None and logprobs.top_logprobs[0] is None
        for token, value, top in list(zip(logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs))[1:]:
            assert value <= 0 and top[token] == value and max(top.values()) >= value
        assert "".join(logprobs.tokens[: len(ids)]) == text
    # The trained answer is what the model would have said: greedy from the last <|assistant|> on.
    right = choices[0].logprobs
    tail = right.tokens.index("<think>") + 1
    assert all(max(top, key=top.get) == token for token, top in list(zip(right.tokens, right.top_logprobs))[tail:-1])


def test_scores_are_those_of_generation(client, model):
    prompt = PROMPT[: PROMPT.index("68 - 5 =")]
    said = client.completions.create(model=model, prompt=prompt, max_tokens=30, temperature=0, logprobs=2).choices[0]
    given = score(client, model, prompt + said.text, logprobs=2)[0]
    start = given.logprobs.text_offset.index(len(prompt))
    assert given.logprobs.tokens[start:] == said.logprobs.tokens  # the drawn stop id included
    for a, b in zip(given.logprobs.token_logprobs[start:], said.logprobs.token_logprobs):
        assert math.isclose(a, b, abs_tol=2e-3)


def test_nothing_has_to_be_generated(client, model):
    answer = client.completions.create(model=model, prompt=PROMPT, max_tokens=0, echo=True, logprobs=0)
    assert answer.choices[0].text == PROMPT and answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 0
    one = score(client, model, PROMPT, logprobs=0)[0]
    assert answer.choices[0].logprobs.token_logprobs == one.logprobs.token_logprobs[:-1]


def test_a_stream_carries_the_same(client, model):
    whole = score(client, model, PROMPT, max_tokens=5)[0]
    text, values = "", []
    for chunk in score_stream(client, model):
        text += chunk.choices[0].text
        if chunk.choices[0].logprobs:
            values += chunk.choices[0].logprobs.token_logprobs
    assert text == whole.text and values == whole.logprobs.token_logprobs


def score_stream(client, model):
    return client.completions.create(model=model, prompt=PROMPT, temperature=0, max_tokens=5, logprobs=1, echo=True, stream=True)


def test_long_prompts_are_scored_in_slices(client, url, model):
    ids = tokens_of(url, "The old mill stands by the river. " * 150)
    assert len(ids) > 1000
    (choice,) = score(client, model, [ids])
    assert len(choice.logprobs.token_logprobs) == len(ids) + 1


def test_best_of(client, model):
    asked = {"model": model, "prompt": PROMPT[: PROMPT.index("<think>")], "temperature": 1.5, "seed": 5, "max_tokens": 12}
    every = client.completions.create(**asked, n=6).choices
    best = client.completions.create(**asked, n=2, best_of=6)
    assert [c.index for c in best.choices] == [0, 1]
    assert {c.text for c in best.choices} <= {c.text for c in every}
    assert best.usage.completion_tokens > 24  # six were generated


def test_the_remote_tokenizer_of_evaluations(url):
    with urllib.request.urlopen(url + "/tokenizer_info") as answer:
        info = json.load(answer)
    assert info["eos_token"] == "<|endoftext|>" and "<|assistant|>" in info["chat_template"]
