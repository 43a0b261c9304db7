#!/usr/bin/env python3
"""Measures a real `godwit serve` with the tiny model over HTTP. Standard library only; loopback only; stops by itself.

  python3 bench/serve_tiny.py [--binary build/godwit] [--port 18700] [--streams 256] [--out FILE]

start          seconds from exec to the first 200 of /readyz, several starts
prefill        seconds to the first token of a 2,048-token prompt, cold and after the same prompt (prefix hit)
decode         milliseconds a token of one greedy stream
hit_4k         time to first token of a 4,096-token prompt: cold over hit
streams        N concurrent streams: every one complete, resident memory half-way and at the end, tokens a second
"""
import argparse, asyncio, json, os, platform, random, signal, statistics, subprocess, sys, time, urllib.request

WORDS = "the lamp on a table near garden teapot river stone cloud paper window basket copper silver north bridge".split()


def get(url, timeout=5):
    with urllib.request.urlopen(url, timeout=timeout) as r:
        return r.read().decode()


class Server:
    def __init__(self, a, *flags):
        self.url = f"http://127.0.0.1:{a.port}"
        self.start = time.perf_counter()
        self.process = subprocess.Popen([a.binary, "serve", "--port", str(a.port), "--log-level", "warn", *flags],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while True:
            try:
                get(self.url + "/readyz")
                break
            except OSError:
                if self.process.poll() is not None or time.perf_counter() - self.start > 30:
                    sys.exit("the server did not become ready")
                time.sleep(0.002)
        self.ready_s = time.perf_counter() - self.start

    def rss(self):
        for line in open(f"/proc/{self.process.pid}/status"):
            if line.startswith("VmRSS"):
                return int(line.split()[1]) * 1024
        return 0

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


def prompt_of(url, tokens, seed):
    """A text of exactly so many tokens, as /v1/completions counts them: ids are sent."""
    r = random.Random(seed)
    text = " ".join(r.choice(WORDS) for _ in range(tokens))
    body = json.dumps({"prompt": text}).encode()
    request = urllib.request.Request(url + "/tokenize", body, {"Content-Type": "application/json"})
    ids = json.load(urllib.request.urlopen(request, timeout=30))["tokens"]
    assert len(ids) >= tokens, (len(ids), tokens)
    return ids[:tokens]


async def stream(port, body):
    """One streamed completion -> (seconds to the first token, seconds in all, tokens, finish reason)."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    data = json.dumps({**body, "stream": True, "stream_options": {"include_usage": True}}).encode()
    start = time.perf_counter()
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
                 b"Content-Length: %d\r\n\r\n" % len(data) + data)
    first, tokens, finish = 0.0, 0, None
    while line := await reader.readline():
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        if "error" in event:
            raise RuntimeError(event["error"])
        if event.get("usage"):
            tokens = event["usage"]["completion_tokens"]
        for choice in event.get("choices", []):
            if not first:
                first = time.perf_counter() - start
            finish = choice.get("finish_reason") or finish
    writer.close()
    return first, time.perf_counter() - start, tokens, finish


def summary(values, digits=4):
    return {"median": round(statistics.median(values), digits), "min": round(min(values), digits),
            "max": round(max(values), digits), "runs": len(values)}


def measure(a):
    out = {}
    starts = []
    for _ in range(a.runs):
        server = Server(a)
        starts.append(server.ready_s)
        server.stop()
    out["start_to_ready_s"] = summary(starts)

    server = Server(a, "--context", "8192")
    base = {"temperature": 0, "ignore_eos": True, "seed": 1}
    cold, warm, cold4, warm4, decode = [], [], [], [], []
    for i in range(a.runs):
        for tokens, first_time, again in ((2048, cold, warm), (4096, cold4, warm4)):
            ids = prompt_of(server.url, tokens, 100 * i + tokens)
            for into in (first_time, again):
                into.append(asyncio.run(stream(a.port, {**base, "prompt": ids, "max_tokens": 1}))[0])
        first, whole, tokens, _ = asyncio.run(
            stream(a.port, {**base, "prompt": prompt_of(server.url, 64, i), "max_tokens": 257}))
        decode.append((whole - first) / (tokens - 1) * 1e3)
    out["prefill_2048_first_token_s"] = summary(cold)
    out["prefill_2048_prefix_hit_s"] = summary(warm)
    out["prefill_4096_first_token_s"] = summary(cold4)
    out["prefill_4096_prefix_hit_s"] = summary(warm4)
    out["prefix_hit_speedup_4096"] = round(statistics.median(cold4) / statistics.median(warm4), 1)
    out["decode_ms_per_token_over_http"] = summary(decode)
    server.stop()

    server = Server(a, "--context", "8192", "--max-waiting", str(a.streams))

    async def many():
        body = {**base, "prompt": prompt_of(server.url, 64, 7), "max_tokens": a.tokens}
        tasks = [asyncio.create_task(stream(a.port, body)) for _ in range(a.streams)]
        half = None
        start = time.perf_counter()
        while not all(t.done() for t in tasks):
            await asyncio.sleep(0.05)
            if half is None and sum(t.done() for t in tasks) * 2 >= a.streams:
                half = server.rss()
        return [t.result() for t in tasks], half, time.perf_counter() - start

    before = server.rss()
    rounds = []
    for _ in range(2):
        results, half, seconds = asyncio.run(many())
        complete = sum(r[2] == a.tokens and r[3] == "length" for r in results)
        rounds.append({"streams": a.streams, "complete": complete, "seconds": round(seconds, 2),
                       "tokens_per_s": round(sum(r[2] for r in results) / seconds), "rss_half_way": half, "rss_end": server.rss()})
    out["concurrent"] = {"rss_before": before, "rounds": rounds}
    server.stop()
    return out


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--binary", default="build/godwit")
    ap.add_argument("--port", type=int, default=18700)
    ap.add_argument("--runs", type=int, default=5)
    ap.add_argument("--streams", type=int, default=256)
    ap.add_argument("--tokens", type=int, default=200)
    ap.add_argument("--out", default="")
    a = ap.parse_args()
    cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), "")
    avx512 = "avx512f" in open("/proc/cpuinfo").read()
    result = {"what": "godwit serve, tiny-glm5next, over HTTP", "date": time.strftime("%Y-%m-%d"),
              "command": "python3 bench/serve_tiny.py", "cpu": cpu + (" (AVX-512)" if avx512 else ""),
              "cores": os.cpu_count(), "machine": platform.machine(), "load_before": os.getloadavg()[0],
              "version": subprocess.run([a.binary, "--version"], capture_output=True, text=True).stdout.strip()}
    result.update(measure(a))
    text = json.dumps(result, indent=1)
    print(text)
    if a.out:
        with open(a.out, "w", encoding="utf8") as f:
            f.write(text + "\n")


if __name__ == "__main__":
    main()
