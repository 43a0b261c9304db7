#!/usr/bin/env python3
"""Is the first request of a shape slower than the ones after it? Standard library only; loopback only; stops by itself.

  python3 bench/first_request.py [--binary build/godwit] [--model DIR] [--device cuda] [--port 18750] [--rounds 20] [--out FILE]

A round is `batch` streams at once of `length` random token ids each and 16 tokens drawn, timed until the last has
ended. One server serves every shape of a lengths x batch matrix in a random order; nothing is warmed up but the
connection. Of each shape: the first round, and median, 90th percentile and slowest of those that follow.
A second server then serves the shapes in another order.
"""
import argparse, asyncio, json, random, signal, statistics, subprocess, sys, time, urllib.request

LENGTHS = (1, 17, 64, 65, 500, 1000, 2048)
BATCHES = (1, 4, 16)
DRAWN = 16


class Server:
    def __init__(self, a):
        self.process = subprocess.Popen(
            [a.binary, "serve", "--model", a.model, "--device", a.device, "--port", str(a.port), "--log-level", "warn"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        started = time.perf_counter()
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{a.port}/readyz", timeout=5)
                return
            except OSError:
                if self.process.poll() is not None or time.perf_counter() - started > 60:
                    sys.exit("the server did not become ready")
                time.sleep(0.01)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)


async def complete(port, ids):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps({"prompt": ids, "max_tokens": DRAWN, "ignore_eos": True, "temperature": 0}).encode()
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n"
                 b"Content-Length: %d\r\n\r\n" % len(body) + body)
    answer = await reader.read()
    writer.close()
    usage = json.loads(answer.split(b"\r\n\r\n", 1)[1])["usage"]
    if usage["completion_tokens"] != DRAWN:
        raise RuntimeError(f"{usage} for {len(ids)} ids")


async def one_round(port, length, batch, dice):
    prompts = [[dice.randrange(300, 500) for _ in range(length)] for _ in range(batch)]
    started = time.perf_counter()
    await asyncio.gather(*(complete(port, ids) for ids in prompts))
    return (time.perf_counter() - started) * 1e3


def serve_shapes(a, seed):
    dice = random.Random(seed)
    shapes = [(length, batch) for length in LENGTHS for batch in BATCHES]
    dice.shuffle(shapes)
    server = Server(a)
    found = []
    try:
        for length, batch in shapes:
            times = [asyncio.run(one_round(a.port, length, batch, dice)) for _ in range(a.rounds + 1)]
            rest = sorted(times[1:])
            median = statistics.median(rest)
            found.append({"length": length, "batch": batch, "first_ms": round(times[0], 2), "median_ms": round(median, 2),
                          "p90_ms": round(rest[int(0.9 * (len(rest) - 1))], 2), "most_ms": round(rest[-1], 2),
                          "first_over_median": round(times[0] / median, 3)})
    finally:
        server.stop()
    return found


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--binary", default="build/godwit")
    p.add_argument("--model", default="models/tiny-glm5next")
    p.add_argument("--device", default="cpu")
    p.add_argument("--port", type=int, default=18750)
    p.add_argument("--rounds", type=int, default=20)
    p.add_argument("--out")
    a = p.parse_args()
    servers = [serve_shapes(a, seed) for seed in (1, 2)]
    ratios = [shape["first_over_median"] for shapes in servers for shape in shapes]
    spread = [shape["p90_ms"] / shape["median_ms"] for shapes in servers for shape in shapes]
    result = {"what": __doc__.split("\n")[0], "device": a.device, "rounds": a.rounds,
              "first_over_median": {"median": round(statistics.median(ratios), 3), "most": max(ratios),
                                    "above_1.05": sum(r > 1.05 for r in ratios), "shapes": len(ratios)},
              "p90_over_median": {"median": round(statistics.median(spread), 3), "most": round(max(spread), 3)},
              "servers": servers}
    if a.out:
        with open(a.out, "w") as f:
            f.write(json.dumps(result) + "\n")
    print(json.dumps({k: result[k] for k in ("device", "first_over_median", "p90_over_median")}))


if __name__ == "__main__":
    main()
