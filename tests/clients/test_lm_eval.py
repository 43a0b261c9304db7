"""lm-eval (lm_eval[api], without torch) against the server, offline: the two ways it talks to OpenAI servers.

The rows are the single-turn ones of tests/evals, which the tiny model answers exactly. Beside each task runs the same
one with the answers of other rows, whose score must be (nearly) nothing: what accepts any answer shows there.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EVALS = Path(os.environ["GODWIT_SOURCE_DIR"]) / "tests" / "evals"

GENERATE = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["\\n\\n\\n"], temperature: 0, max_gen_toks: 400}}
metric_list: [{{metric: exact_match}}]
"""

CHOOSE = """
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{context}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: gold
target_delimiter: ""
metric_list: [{{metric: acc}}]
"""


def questions():
    """(question, thinking, answer) of the rows that one user message and a plain answer make."""
    for line in (EVALS / "tiny_eval.jsonl").read_text(encoding="utf8").splitlines():
        row = json.loads(line)
        if row["task"] not in ("arithmetic", "chat", "needle") or not row["thinking"] or len(row["messages"]) != 1:
            continue
        thought, answer = row["reference_output"].split("</think>")
        yield row["messages"][0]["content"], thought, answer


def rotate(rows, key):
    """The rows, each with what its neighbour has under `key`, and the share of them for which that is the same."""
    rotated = [{**row, key: rows[i - 1][key]} for i, row in enumerate(rows)]
    return rotated, sum(a[key] == b[key] for a, b in zip(rows, rotated, strict=True)) / len(rows)


def write_task(folder, template, name, rows):
    data = folder / f"{name}.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf8")
    (folder / f"{name}.yaml").write_text(template.format(name=name, data=data), encoding="utf8")


def run(folder, kind, model_args, tasks, *more):
    """lm-eval's results by task: metrics without the names of filters."""
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "home"), "OPENAI_API_KEY": "none"}
    command = [sys.executable, "-m", "lm_eval", "run", "--model", kind, "--model_args", model_args, "--tasks", ",".join(tasks), "--include_path", str(folder)]
    done = subprocess.run([*command, "--output_path", str(folder / "out"), *more], capture_output=True, text=True, timeout=400, env=environment, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Retry attempt" not in done.stderr and "API request failed" not in done.stderr, done.stderr
    (result,) = (folder / "out").rglob("results_*.json")
    by_task = json.loads(result.read_text())["results"]
    return {task: {name.split(",")[0]: value for name, value in by_task[task].items()} for task in tasks}


def test_local_chat_completions_generates_the_reference_answers(url, model, tmp_path):
    rows = [{"question": question, "answer": answer} for question, _, answer in questions()]
    assert len(rows) >= 20
    write_task(tmp_path, GENERATE, "tiny_chat", rows)
    wrong, same = rotate(rows, "answer")
    assert same < 0.2
    write_task(tmp_path, GENERATE, "tiny_chat_wrong", wrong)
    arguments = f"model={model},base_url={url}/v1/chat/completions,num_concurrent=4,max_retries=1,eos_string=<|user|>"
    scores = run(tmp_path, "local-chat-completions", arguments, ["tiny_chat", "tiny_chat_wrong"], "--apply_chat_template")
    assert scores["tiny_chat"]["exact_match"] == 1.0
    assert scores["tiny_chat_wrong"]["exact_match"] == pytest.approx(same)


def test_local_completions_scores_prompts_by_echo_and_logprobs(url, model, tmp_path):
    """Batches of id lists, tokenised by the server itself; the thinking is part of the context."""
    head = "[gMASK]<sop><|system|>Reasoning Effort: Max<|user|>"
    rows = list(questions())
    choices = [[rows[(i + k) % len(rows)][2] for k in range(4)] for i in range(len(rows))]
    data = [
        {"context": f"{head}{question}<|assistant|><think>{thought}</think>", "choices": [*choices[i][1:], answer], "gold": 3}
        for i, (question, thought, answer) in enumerate(rows)
        if answer not in choices[i][1:]
    ]
    assert len(data) >= 20
    write_task(tmp_path, CHOOSE, "tiny_choice", data)
    write_task(tmp_path, CHOOSE, "tiny_choice_wrong", [{**row, "gold": 0} for row in data])
    arguments = f"model={model},base_url={url}/v1/completions,tokenizer_backend=remote,max_length=4096,max_retries=1"
    scores = run(tmp_path, "local-completions", arguments, ["tiny_choice", "tiny_choice_wrong"], "--batch_size", "8")
    assert scores["tiny_choice"]["acc"] == 1.0
    assert scores["tiny_choice_wrong"]["acc"] == 0.0
