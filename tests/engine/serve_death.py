"""A served engine that dies: readiness, streams, exit code, the dump, and that `godwit replay-step` runs it again.

Usage: serve_death.py BINARY MODEL_DIR [cuda]. Needs a build with fault points; with `cuda` one whose CUDA backend runs without a
GPU (tests/cuda_emulation), and then a kernel is what fails. Standard library only.
"""

import json
import os
import re
import socket
import stat
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

BINARY, MODEL = sys.argv[1], sys.argv[2]


def post(body):
    data = json.dumps(body).encode()
    return (f"POST /v1/completions HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n"
            .encode() + data)


class Served(unittest.TestCase):
    tokens = 5000  # of a stream: more than it lives to give

    def start(self, fault, *flags):
        self.dumps = self.enterContext(tempfile.TemporaryDirectory())
        self.process = subprocess.Popen(
            [BINARY, "serve", "--port", "0", "--model", MODEL, "--dump-dir", self.dumps, *flags],
            env=os.environ | {"GODWIT_ARM": fault}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(self.process.stdout.close)
        self.addCleanup(self.process.wait)
        self.addCleanup(self.process.kill)
        self.log = []
        for line in self.process.stdout:
            self.log.append(line)
            if found := re.search(r"ready .*http://127\.0\.0\.1:(\d+)", line):
                self.port = int(found.group(1))
                break
        self.reader = threading.Thread(target=lambda: self.log.extend(self.process.stdout), daemon=True)
        self.reader.start()

    def ask(self, text):
        with socket.create_connection(("127.0.0.1", self.port), timeout=300) as connection:
            connection.sendall(text)
            received = b""
            while piece := connection.recv(65536):
                received += piece
            return received

    def streams_until_death(self, count, patience=60):
        answers = [b""] * count

        def run(i):
            answers[i] = self.ask(post({"prompt": "The old mill " * (i + 1), "stream": True, "ignore_eos": True,
                                        "max_tokens": self.tokens, "temperature": i % 2, "seed": i}))

        threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(patience)
        for answer in answers:
            self.assertIn(b'data: {"error"', answer[-1000:])
            self.assertIn(b"data: [DONE]", answer[-100:])
        self.assertEqual(self.process.wait(30), 1, "".join(self.log))

    def check_dump(self):
        files = list(Path(self.dumps).iterdir())
        self.assertEqual(len(files), 1, "".join(self.log))
        self.assertEqual(stat.S_IMODE(files[0].stat().st_mode), 0o600)
        self.reader.join(10)
        self.assertIn(str(files[0]), "".join(self.log))
        replay = subprocess.run([BINARY, "replay-step", str(files[0])], capture_output=True, text=True, timeout=60)
        self.assertEqual(replay.returncode, 0, replay.stdout + replay.stderr)
        self.assertRegex(replay.stdout, r"then 1 of the \d+ recorded steps ran")
        self.assertIn("draws", replay.stdout)
        self.assertNotIn("note: dumped by", replay.stdout)


class Death(Served):
    def test_a_step_that_throws_ends_the_server_with_exit_1_and_a_dump(self):
        self.start("engine.step:60")
        self.streams_until_death(4)
        self.check_dump()

    def test_a_step_that_never_ends_does_too(self):
        self.start("engine.stall:60:-1", "--step-deadline", "1")
        began = time.monotonic()
        self.streams_until_death(3)
        self.assertLess(time.monotonic() - began, 30)
        self.check_dump()

    def test_a_bad_row_costs_one_request(self):
        self.start("engine.nan")
        bad = self.ask(post({"prompt": "The", "max_tokens": 5, "ignore_eos": True}))
        good = self.ask(post({"prompt": "The", "max_tokens": 5, "ignore_eos": True}))
        self.assertIn(b" 500 ", bad[:20])
        self.assertIn(b" 200 ", good[:20])


class DeviceDeath(Served):
    tokens = 200

    def readiness(self):
        try:
            return self.ask(b"GET /readyz HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").split()[1]
        except OSError:  # the process has gone
            return b"gone"

    def test_a_kernel_that_fails_ends_the_server_with_exit_1_and_a_dump(self):
        # The start runs one slice, less than 300 kernels; a step has more than 100.
        self.start("cuda.kernel:500", "--device", "cuda", "--context", "256", "--max-sequences", "2",
                   "--prefill-tokens", "64", "--host-cache", "0")
        self.assertEqual(self.readiness(), b"200")
        self.streams_until_death(2, patience=300)
        self.assertIn(self.readiness(), (b"503", b"gone"))
        self.assertRegex("".join(self.log), r"engine failed: CUDA failed in .*illegal memory access")
        self.check_dump()


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"], defaultTest="DeviceDeath" if sys.argv[3:] == ["cuda"] else "Death")
