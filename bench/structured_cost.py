"""What a schema adds to a streamed chat, per token: wall time and CPU time of the whole server.

Usage: structured_cost.py --binary build/godwit [--model DIR] [--rounds N] [--tokens N]. Plain and structured requests
take turns on one idle server, one stream at a time, the same number of tokens each; the first round of each warms up
and does not count. CPU time blurs less than wall time on a busy machine. Prints one JSON line. Standard library only.
"""

import argparse
import http.client
import json
import os
import re
import statistics
import subprocess
import time

SCHEMA = {
    "type": "object",
    "properties": {
        "records": {
            "type": "array",
            "minItems": 1000,
            "items": {
                "type": "object",
                "properties": {"id": {"type": "integer"}, "name": {"type": "string", "maxLength": 12}, "kind": {"enum": ["north", "south"]}, "ok": {"type": "boolean"}},
                "required": ["id", "name", "kind", "ok"],
            },
        }
    },
    "required": ["records"],
}


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def stream(port, body):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    text = answer.read()
    connection.close()
    usage = [json.loads(line[6:]).get("usage") for line in text.split(b"\n") if line.startswith(b"data: {")]
    return [u for u in usage if u][-1]["completion_tokens"]


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--binary", required=True)
    options.add_argument("--model", default="models/tiny-glm5next")
    options.add_argument("--rounds", type=int, default=12)
    options.add_argument("--tokens", type=int, default=600)
    given = options.parse_args()
    server = subprocess.Popen([given.binary, "serve", "--model", given.model, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    port = next(int(found.group(1)) for line in server.stdout if (found := re.search(r"ready .*http://127\.0\.0\.1:(\d+)", line)))
    plain = {"messages": [{"role": "user", "content": "List 3 tools."}], "stream": True, "stream_options": {"include_usage": True}, "max_tokens": given.tokens, "ignore_eos": True, "reasoning_effort": "none", "temperature": 0}
    kinds = {"plain": plain, "schema": plain | {"response_format": {"type": "json_schema", "json_schema": {"name": "records", "schema": SCHEMA}}}}
    wall, cpu = {k: [] for k in kinds}, {k: [] for k in kinds}
    for _ in range(given.rounds + 1):
        for kind, body in kinds.items():
            before, began = cpu_seconds(server.pid), time.monotonic()
            tokens = stream(port, body)
            assert tokens == given.tokens, (kind, tokens)
            wall[kind].append((time.monotonic() - began) / tokens * 1e6)
            cpu[kind].append((cpu_seconds(server.pid) - before) / tokens * 1e6)
    server.terminate()
    server.wait(30)
    out = {"tokens": given.tokens, "rounds": given.rounds, "load_average": os.getloadavg()[0]}
    for name, values in (("wall_us_per_token", wall), ("cpu_us_per_token", cpu)):
        for kind in kinds:
            out[f"{kind}_{name}"] = round(statistics.median(values[kind][1:]), 1)
    out["first_schema_wall_us_per_token"] = round(wall["schema"][0], 1)
    print(json.dumps(out))


if __name__ == "__main__":
    main()
