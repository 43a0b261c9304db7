"""Soaks a real `godwit serve`: many streams at once, slow readers, clients that leave at random points.

soak.py --binary build/godwit --model models/tiny-glm5next --seconds 1800 --streams 1000

Loopback only, bounded in time and in the number of streams, standard library only. Requests carry changing cache salts,
which change no answer: the prefix cache is hit, fills up, and drops to the host tier. It fails when a finished answer
differs from the one the same request gave alone, when a page or slot is still held once all streams have ended, when
anything is left once the cache is flushed, when the process has grown, or when SIGTERM under load leaves a stream without
an end.
"""

import argparse
import asyncio
import json
import os
import random
import re
import signal
import sys
import time
from collections import Counter


STUCK_S = 60
LONGEST_DRAIN_S = 1200
SALTS = 4000  # so many tenants: more prefixes than the cache holds


class Server:
    """The process under test and its address."""

    async def start(self, args, streams):
        self.process = await asyncio.create_subprocess_exec(
            args.binary, "serve", "--model", args.model, "--port", "0", "--context", "4096", "--log-level", "error",
            "--max-waiting", str(2 * streams), "--drain-timeout", "3", "--host-cache", "32MiB",
            stdout=asyncio.subprocess.PIPE, stderr=sys.stderr)
        async with asyncio.timeout(120):
            while line := await self.process.stdout.readline():
                if found := re.search(rb"http://127\.0\.0\.1:(\d+)", line):
                    self.port = int(found.group(1))
                    break
        assert self.port, "the server did not start"
        self.drain = asyncio.create_task(self.process.stdout.read())
        while (await self.get("/readyz"))[0] != 200:
            await asyncio.sleep(0.05)

    async def get(self, path, method="GET"):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(f"{method} {path} HTTP/1.1\r\nHost: soak\r\nConnection: close\r\n\r\n".encode())
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
            return int(head.split()[1]), body
        finally:
            writer.close()

    async def info(self):
        return json.loads((await self.get("/server_info"))[1])["engine"]

    def resident_mib(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:")) / 1024


def jobs(count):
    """Requests whose answers are known once they have run alone: greedy and seeded, short and long."""
    words = "The river carries small boats past old mills while bells count slow hours over quiet fields".split()
    out = []
    for i in range(count):
        chance = random.Random(i)
        prompt = " ".join(chance.choice(words) for _ in range(chance.choice([1, 3, 20, 120])))
        out.append({"prompt": prompt, "temperature": i % 2, "seed": i, "ignore_eos": True, "stream": i % 5 != 4,
                    "max_tokens": chance.choice([5, 20, 60, 150])})
    return out


def post(body):
    data = json.dumps(body).encode()
    return (f"POST /v1/completions HTTP/1.1\r\nHost: soak\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n"
            .encode() + data)


def answer_of(response):
    """(status, text, end) of a whole response; end is a finish reason, "error" or None."""
    head, _, body = response.partition(b"\r\n\r\n")
    status = int(head.split()[1]) if head else 0
    if b"text/event-stream" not in head:
        if status != 200:
            return status, "", "error"
        choice = json.loads(body)["choices"][0]
        return status, choice["text"], choice["finish_reason"]
    text, end = "", None
    for line in body.replace(b"\r\n", b"\n").split(b"\n"):
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        if "error" in event:
            end = "error"
        elif event["choices"]:
            text += event["choices"][0].get("text", "")
            end = event["choices"][0].get("finish_reason") or end
    return status, text, end


def unchunk(raw):
    """The same response without chunked framing."""
    head, split, body = raw.partition(b"\r\n\r\n")
    if b"chunked" not in head.lower():
        return raw
    out = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16) if size else 0
        if length == 0:
            break
        out += rest[:length]
        body = rest[length + 2:]
    return head + split + out


async def ask(server, job, leave_after=None, pause=0.0):
    """The response, or None when this client left after so many bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=4096)
    try:
        writer.write(post(job))
        await writer.drain()
        received = b""
        while leave_after is None or len(received) < leave_after:
            piece = await reader.read(512 if pause else 65536)
            if not piece:
                return answer_of(unchunk(received))
            received += piece
            if pause:
                await asyncio.sleep(pause)
        return None
    finally:
        writer.close()


async def client(server, known, chance, until, seen):
    while time.monotonic() < until:
        job, expected = chance.choice(known)
        kind = chance.random()
        try:
            if kind < 0.15:
                await ask(server, job, leave_after=chance.choice([0, 1, 200, 2000, 5000]))
                seen["left"] += 1
                continue
            slow = kind < 0.25
            if chance.random() < 0.5:
                job = {**job, "cache_salt": str(chance.randrange(SALTS))}
            response = await ask(server, job, pause=0.02 if slow else 0.0)
        except ConnectionError:
            seen["connection lost"] += 1
            continue
        if response[0] == 429:
            seen["refused"] += 1
            await asyncio.sleep(0.2)
        elif response == expected:
            seen["slow and equal" if slow else "equal"] += 1
        else:
            seen["DIFFERENT"] += 1
            if seen["DIFFERENT"] < 5:
                print(f"different: {job}\n  alone {expected}\n  here  {response}", flush=True)


async def phase(server, known, streams, seconds, seed, seen):
    until = time.monotonic() + seconds
    clients = asyncio.gather(*(client(server, known, random.Random(seed + i), until, seen) for i in range(streams)))
    # A busy machine may take long to answer what waits at the end; a server that does nothing is stuck.
    steps, changed = 0, time.monotonic()
    while not (await asyncio.wait({clients}, timeout=5))[0]:
        info = await server.info()
        if info["steps"] != steps:
            steps, changed = info["steps"], time.monotonic()
        if time.monotonic() > min(changed + STUCK_S, until + LONGEST_DRAIN_S):
            clients.cancel()
            raise SystemExit(f"{seen.total()} requests ended, the others do not: {info}")
    await clients
    for _ in range(200):
        info = await server.info()
        if info["running"] + info["waiting"] + info["pages_used"] + info["slots_used"] == 0:
            return server.resident_mib()
        await asyncio.sleep(0.05)
    raise SystemExit(f"still held at idle: {info}")


async def audit(server):
    """What is left at idle once every cached prefix is forgotten: nothing."""
    status, body = await server.get("/flush_cache", "POST")
    assert status == 200, body
    info = await server.info()
    held = {key: info[key] for key in ("pages_used", "slots_used", "pages_cached", "snapshots_used", "host_pages_used",
                                       "host_snapshots_used", "host_slots_used")}
    return json.loads(body), {key: count for key, count in held.items() if count}


async def terminate_under_load(server, streams):
    long = {"prompt": "The", "stream": True, "ignore_eos": True, "max_tokens": 4000, "temperature": 0}
    running = [asyncio.create_task(ask(server, long)) for _ in range(streams)]
    await asyncio.sleep(1)
    server.process.send_signal(signal.SIGTERM)
    ends = Counter()
    for result in await asyncio.wait_for(asyncio.gather(*running, return_exceptions=True), 60):
        ends["no end" if isinstance(result, Exception) or result[2] is None else result[2]] += 1
    code = await asyncio.wait_for(server.process.wait(), 30)
    print(f"SIGTERM with {streams} streams: {dict(ends)}, exit code {code}", flush=True)
    return ends["no end"] == 0 and code == 0


async def soak(args):
    server = Server()
    await server.start(args, args.streams)
    try:
        known = []
        for job in jobs(args.answers):
            response = await ask(server, job)
            assert response[0] == 200 and response[2] == "length", (job, response)
            known.append((job, response))
        seen = Counter()
        warm = await phase(server, known, args.streams, args.seconds / 3, 1000, seen)
        end = await phase(server, known, args.streams, args.seconds * 2 / 3, 2000, seen)
        print(f"{args.streams} streams for {args.seconds} s: {dict(seen)}; resident {warm:.1f} MiB after a third, "
              f"{end:.1f} MiB at the end", flush=True)
        info = await server.info()
        cache = {key: info[key] for key in ("steps", "preemptions", "prefix_cache")}
        freed, left = await audit(server)
        print(f"cache {json.dumps(cache)}; flushed {json.dumps(freed)}", flush=True)
        failures = []
        if left:
            failures.append(f"left after a flush at idle: {left}")
        if seen["DIFFERENT"] or seen["connection lost"]:
            failures.append("answers differ or connections were lost")
        if seen["equal"] < args.streams or not seen["left"] or not seen["slow and equal"]:
            failures.append("too little happened to say anything")
        if end > warm * 1.02 + 4:
            failures.append("the process has grown")
        if not await terminate_under_load(server, min(args.streams, 200)):
            failures.append("SIGTERM left streams without an end")
        for failure in failures:
            print(f"FAILED: {failure}")
        if args.report:
            report = {"streams": args.streams, "seconds": args.seconds, "different_requests": args.answers,
                      "cpu_count": os.cpu_count(), "load_average": os.getloadavg(), "outcomes": dict(seen), "cache": cache,
                      "flushed": freed, "left_after_flush": left, "resident_mib": [round(warm, 1), round(end, 1)],
                      "failures": failures}
            with open(args.report, "w") as file:
                json.dump(report, file, indent=1)
                file.write("\n")
        return 1 if failures else 0
    finally:
        if server.process.returncode is None:
            server.process.kill()
            await server.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--streams", type=int, default=1000)
    parser.add_argument("--report", help="a JSON file for what happened")
    parser.add_argument("--answers", type=int, default=40, help="different requests")
    args = parser.parse_args()
    if not (1 <= args.seconds <= 7200 and 1 <= args.streams <= 4000 and 1 <= args.answers <= 1000):
        parser.error("at most 7200 seconds, 4000 streams and 1000 answers")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # or the server would outlive its test
    return asyncio.run(soak(args))


if __name__ == "__main__":
    sys.exit(main())
