#!/usr/bin/env python3
"""Does tokenising a million tokens delay anybody else? Standard library only; loopback only; stops by itself.

  python3 bench/tokenize_delay.py [--binary build/godwit] [--port 18710] [--rounds 5] [--out FILE]

A stream of tokens and a probe every 10 ms run for some seconds alone, then while another client posts texts of a million
tokens to /tokenize, in turns. Three client processes, so that one's work does not show in another's times. Reported: the
stream's time between tokens and the probe's time to its answer, alone and beside the work, and how much later the latter
are at the same percentile.
"""
import argparse, http.client, json, multiprocessing, os, platform, random, signal, subprocess, sys, time, urllib.request

WORDS = "the lamp on a table near garden teapot river stone cloud paper window basket copper silver north bridge".split()


def stream_gaps(port, tokens, out):
    """Milliseconds between the events of one stream of so many tokens."""
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    c.request("POST", "/v1/completions", json.dumps({"prompt": "hello", "max_tokens": tokens, "ignore_eos": True, "stream": True,
                                                     "temperature": 0}), {"Content-Type": "application/json"})
    answer, gaps, last = c.getresponse(), [], None
    while line := answer.fp.readline():
        if line.startswith(b"data: {"):
            now = time.perf_counter()
            if last is not None:
                gaps.append((now - last) * 1e3)
            last = now
        elif line.startswith(b"data: [DONE]"):
            break
    out.put(("token", gaps))


def probe_times(port, stop, out):
    """Milliseconds of a /livez on a kept connection, every 10 ms until stop."""
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    times = []
    while not stop.is_set():
        start = time.perf_counter()
        c.request("GET", "/livez")
        c.getresponse().read()
        times.append((time.perf_counter() - start) * 1e3)
        time.sleep(0.01)
    out.put(("probe", times))


def post_texts(port, text, stop, out):
    """Texts to /tokenize one after the other until stop; tokens and seconds of each."""
    body, done = json.dumps({"prompt": text}).encode(), []
    while not stop.is_set():
        start = time.perf_counter()
        request = urllib.request.Request(f"http://127.0.0.1:{port}/tokenize", body, {"Content-Type": "application/json"})
        head = urllib.request.urlopen(request, timeout=120).read()[:64]
        done.append((int(head.split(b":")[1].split(b",")[0]), time.perf_counter() - start))
    out.put(("work", done))


def phase(a, text):
    out, stop = multiprocessing.Queue(), multiprocessing.Event()
    helpers = [multiprocessing.Process(target=probe_times, args=(a.port, stop, out))]
    if text:
        helpers.append(multiprocessing.Process(target=post_texts, args=(a.port, text, stop, out)))
    for p in helpers:
        p.start()
    time.sleep(0.3)
    streamer = multiprocessing.Process(target=stream_gaps, args=(a.port, a.tokens, out))
    streamer.start()
    results = dict([out.get()])
    stop.set()
    while len(results) < len(helpers) + 1:
        results.update([out.get()])
    for p in helpers + [streamer]:
        p.join()
    return results


def percentiles(values):
    v = sorted(values)
    return {"count": len(v), **{f"p{q}_ms": round(v[min(len(v) - 1, int(len(v) * q / 100))], 3) for q in (50, 90, 99, 99.9)},
            "max_ms": round(v[-1], 3)}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--binary", default="build/godwit")
    ap.add_argument("--port", type=int, default=18710)
    ap.add_argument("--rounds", type=int, default=5)
    ap.add_argument("--tokens", type=int, default=3000)
    ap.add_argument("--out", default="")
    a = ap.parse_args()
    server = subprocess.Popen([a.binary, "serve", "--port", str(a.port), "--log-level", "warn", "--context", "8192"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(3000):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{a.port}/readyz", timeout=5)
            break
        except OSError:
            time.sleep(0.01)
    else:
        sys.exit("the server did not become ready")
    r = random.Random(3)
    text = " ".join(r.choice(WORDS) for _ in range(1_000_000))
    alone, beside, work = {"token": [], "probe": []}, {"token": [], "probe": []}, []
    load = os.getloadavg()[0]
    for _ in range(a.rounds):
        for into, some in ((alone, None), (beside, text)):
            got = phase(a, some)
            work += got.get("work", [])
            for kind in into:
                into[kind] += got[kind]
    server.send_signal(signal.SIGTERM)
    server.wait(30)
    result = {"what": "delay of other clients by the tokenisation of a million tokens, tiny model", "date": time.strftime("%Y-%m-%d"),
              "command": "python3 bench/tokenize_delay.py", "cores": os.cpu_count(), "machine": platform.machine(),
              "load_before": load, "version": subprocess.run([a.binary, "--version"], capture_output=True, text=True).stdout.strip(),
              "texts": len(work), "tokens_of_a_text": work[0][0], "median_s_of_a_text": round(sorted(w[1] for w in work)[len(work) // 2], 3)}
    for kind in ("token", "probe"):
        result[kind] = {"alone": percentiles(alone[kind]), "beside": percentiles(beside[kind])}
        result[kind]["later_ms"] = {k: round(result[kind]["beside"][k] - v, 3) for k, v in result[kind]["alone"].items() if k != "count"}
    print(json.dumps(result, indent=1))
    if a.out:
        with open(a.out, "w", encoding="utf8") as f:
            f.write(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
