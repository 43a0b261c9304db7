#!/usr/bin/env python3
"""Runs Open WebUI from PyPI, without a browser, against a godwit server: its model list and one streamed chat.

    tools/open_webui.py [--binary build/godwit] [--url http://127.0.0.1:8000] [--cache DIR] [--install-only]

Needs Python 3.11 or 3.12 and a package index; installs into its own environment under --cache (about 2 GB, some minutes,
once). PyTorch and CUDA are left out: only Open WebUI's own embedding models would need them. Without --url a server with the
built-in tiny model is started. Prints PASS or FAIL with the reason; exit code 0 or 1.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

VERSION = "0.12.4"
LEFT_OUT = ("torch", "triton", "nvidia-", "cuda-")
START_WITHIN_S = 300
QUESTION = "List 3 tools."


def install(cache):
    """The environment's python; made when it is not there."""
    python = cache / f"open-webui-{VERSION}" / "bin" / "python"
    stamp = python.parent.parent / "installed"
    if stamp.exists():
        return python
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:"]
    print(f"installing open-webui {VERSION} into {python.parent.parent}", flush=True)
    subprocess.run([sys.executable, "-m", "venv", python.parent.parent], check=True)
    report = cache / "resolved.json"
    subprocess.run([*pip, "--dry-run", "--report", report, f"open-webui=={VERSION}"], check=True)
    resolved = [item["metadata"] for item in json.loads(report.read_text())["install"]]
    wanted = [f"{p['name']}=={p['version']}" for p in resolved if not p["name"].lower().startswith(LEFT_OUT)]
    subprocess.run([*pip, "--no-deps", *wanted], check=True)
    stamp.touch()
    return python


def start_godwit(binary, log):
    process = subprocess.Popen([binary, "serve", "--port", "0"], stdout=log, stderr=subprocess.STDOUT)
    end = time.monotonic() + START_WITHIN_S
    while time.monotonic() < end:
        found = re.search(r"http://127\.0\.0\.1:\d+", Path(log.name).read_text())
        if found and answers(found.group(0) + "/readyz"):
            return process, found.group(0)
        if process.poll() is not None:
            break
        time.sleep(0.1)
    process.kill()
    raise SystemExit(f"FAIL: {binary} serve did not become ready:\n{Path(log.name).read_text()}")


def start_open_webui(python, url, data, port, log):
    environment = {
        **os.environ,
        "DATA_DIR": str(data),
        "WEBUI_AUTH": "False",  # no login
        "WEBUI_SECRET_KEY": "only-for-this-run",
        "OPENAI_API_BASE_URL": url + "/v1",
        "OPENAI_API_KEY": "none",
        "ENABLE_OLLAMA_API": "False",
        "OFFLINE_MODE": "True",
        "HF_HUB_OFFLINE": "1",
        "RAG_EMBEDDING_ENGINE": "openai",  # the default engine loads PyTorch and downloads a model
    }
    command = [python.parent / "open-webui", "serve", "--host", "127.0.0.1", "--port", str(port)]
    return subprocess.Popen(command, env=environment, cwd=data, stdout=log, stderr=subprocess.STDOUT)


def answers(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as reply:
            return reply.status == 200
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def call(url, token=None, body=None):
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    data = None if body is None else json.dumps(body).encode()
    return urllib.request.urlopen(urllib.request.Request(url, data=data, headers=headers), timeout=120)


def check(webui):
    """What a user does first: log in (there is no password), look at the models, ask something."""
    with call(webui + "/api/v1/auths/signin", body={"email": "", "password": ""}) as reply:
        token = json.load(reply)["token"]
    with call(webui + "/api/models", token) as reply:
        models = [model["id"] for model in json.load(reply)["data"]]
    print(f"models: {models}")
    if not models:
        raise SystemExit("FAIL: Open WebUI lists no model")
    body = {"model": models[0], "stream": True, "messages": [{"role": "user", "content": QUESTION}], "temperature": 0}
    pieces, reasoning, finish = [], [], None
    with call(webui + "/api/chat/completions", token, body) as reply:
        for line in reply:
            if not line.startswith(b"data: ") or line.strip() == b"data: [DONE]":
                continue
            for choice in json.loads(line[6:]).get("choices", []):
                pieces.append(choice["delta"].get("content") or "")
                reasoning.append(choice["delta"].get("reasoning_content") or "")
                finish = choice.get("finish_reason") or finish
    answer = "".join(pieces)
    print(f"asked {QUESTION!r}: {len([p for p in pieces if p])} pieces, answer {answer!r}, reasoning {''.join(reasoning)!r}, finish {finish}")
    if not answer.strip() or finish != "stop" or len([p for p in pieces if p]) < 2:
        raise SystemExit("FAIL: the streamed chat is not whole")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="build/godwit")
    parser.add_argument("--url", help="of a running server")
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "godwit")
    parser.add_argument("--port", type=int, default=8091, help="for Open WebUI")
    parser.add_argument("--install-only", action="store_true")
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    python = install(options.cache)
    if options.install_only:
        return
    with tempfile.TemporaryDirectory() as folder, open(Path(folder) / "godwit.log", "w") as godwit_log, open(Path(folder) / "webui.log", "w") as log:
        processes = []
        try:
            url = options.url
            if url is None:
                process, url = start_godwit(options.binary, godwit_log)
                processes.append(process)
            webui = f"http://127.0.0.1:{options.port}"
            processes.append(start_open_webui(python, url.rstrip("/"), Path(folder), options.port, log))
            end = time.monotonic() + START_WITHIN_S
            while not answers(webui + "/health"):
                if processes[-1].poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"FAIL: Open WebUI did not start:\n{Path(log.name).read_text()[-4000:]}")
                time.sleep(0.5)
            check(webui)
            print(f"PASS: Open WebUI {VERSION}")
        finally:
            for process in reversed(processes):
                process.terminate()
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()


if __name__ == "__main__":
    main()
