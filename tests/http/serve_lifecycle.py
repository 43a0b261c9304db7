"""The life of `godwit serve` as a supervisor sees it: start, probes, streams under SIGTERM, exit codes.

Usage: serve_lifecycle.py BINARY MODEL_DIR. Only the standard library, raw sockets where bytes matter.
"""

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

BINARY, MODEL = sys.argv[1], Path(sys.argv[2])


class Server:
    def __init__(self, *flags, model=MODEL):
        self.process = subprocess.Popen(
            [BINARY, "serve", "--port", "0", "--model", str(model), *flags],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        self.log = []
        self.port = None
        self.ready = threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        for line in self.process.stdout:
            self.log.append(line)
            found = re.search(r"ready .*http://127\.0\.0\.1:(\d+)", line)
            if found:
                self.port = int(found.group(1))
                self.ready.set()

    def end(self):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()

    def wait_ready(self):
        assert self.ready.wait(60), "".join(self.log)
        return self

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def ask(self, text):
        with self.connect() as connection:
            connection.sendall(text)
            received = b""
            while piece := connection.recv(65536):
                received += piece
            return received


def post(body, path="/v1/chat/completions"):
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n"
    return head.encode() + data


def get(path):
    return f"GET {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n".encode()


LONG = {"prompt": "The", "stream": True, "ignore_eos": True, "max_tokens": 100000}


class Lifecycle(unittest.TestCase):
    def start(self, *flags, **kwargs):
        server = Server(*flags, **kwargs)
        self.addCleanup(server.end)
        return server

    def begin_stream(self, server):
        connection = server.connect()
        self.addCleanup(connection.close)
        connection.sendall(post(LONG, "/v1/completions"))
        received = b""
        while b"data: " not in received:
            received += connection.recv(65536)
        return connection

    def read_to_end(self, connection):
        received = b""
        while piece := connection.recv(65536):
            received += piece
        return received

    def test_sigterm_ends_streams_at_the_deadline_with_an_error_event_and_exit_0(self):
        server = self.start("--drain-timeout", "1").wait_ready()
        streams = [self.begin_stream(server) for _ in range(5)]
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        self.assertIn(b" 503 ", server.ask(get("/readyz")))
        self.assertIn(b" 200 ", server.ask(get("/livez")))
        for connection in streams:
            received = self.read_to_end(connection)
            self.assertIn(b'data: {"error"', received[-2000:])
            self.assertIn(b"data: [DONE]\n\n", received[-200:])
        self.assertEqual(server.process.wait(20), 0, "".join(server.log))

    def test_an_idle_server_leaves_at_once(self):
        server = self.start().wait_ready()
        started = time.monotonic()
        server.process.send_signal(signal.SIGINT)
        self.assertEqual(server.process.wait(20), 0)
        self.assertLess(time.monotonic() - started, 5)

    def test_a_client_that_leaves_frees_its_slot(self):
        server = self.start("--max-sequences", "1").wait_ready()
        self.begin_stream(server).close()
        # With one slot this answer can only come once the abandoned stream is gone.
        self.assertIn(b" 200 ", server.ask(post({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5})))
        self.assertIn(b"godwit_aborts_total 1", server.ask(get("/metrics")))

    def test_a_directory_without_a_model_is_refused_with_exit_3(self):
        with tempfile.TemporaryDirectory() as directory:
            for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "config.json"):
                shutil.copy(MODEL / name, directory)
            (Path(directory) / "config.json").write_text('{"model_type": "other"}')
            server = self.start(model=directory)
            self.assertEqual(server.process.wait(60), 3, "".join(server.log))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"])
