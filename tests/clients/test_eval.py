"""tests/evals over HTTP: the tiny model answers its 60 rows as the reference does (59 must be right)."""

import json
import os
import subprocess
import sys
from pathlib import Path

EVALS = Path(os.environ["GODWIT_SOURCE_DIR"]) / "tests" / "evals"


def run_score(url, data, tmp_path):
    out = tmp_path / "result.json"
    command = [sys.executable, str(EVALS / "score.py"), "--url", url, "--data", str(EVALS / data), "--out", str(out), "--parallel", "4", "--min", "0.983"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(out.read_text())
    assert result["total"] == 60 and result["errors"] == 0
    rows = [json.loads(line) for line in (EVALS / data).read_text(encoding="utf8").splitlines()]
    for row, item in zip(rows, result["items"], strict=True):
        assert item["usage"]["prompt_tokens"] == row["prompt_tokens"], item["id"]


def test_tiny_eval(url, tmp_path):
    run_score(url, "tiny_eval.jsonl", tmp_path)


def test_list_arguments_and_no_tool(url, tmp_path):
    run_score(url, "tiny_lists.jsonl", tmp_path)
