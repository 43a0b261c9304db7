"""One server with the tiny model for the whole test session: `url`, `client` (openai) and raw access to it."""

import os
import re
import subprocess
import threading
import time
import urllib.error
import urllib.request

import openai
import pytest

BINARY = os.environ["GODWIT_BINARY"]
READY_WITHIN_S = 60  # the machine may be busy with other tests


class Server:
    """`godwit serve` on a free port; its log is kept and shown when a test fails to start it."""

    def __init__(self, *args, env=None):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("GODWIT_")}
        self.process = subprocess.Popen(
            [BINARY, "serve", "--port", "0", *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**clean, **(env or {})}
        )
        self.lines = []
        self.url = None
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line)
            found = re.search(r"http://127\.0\.0\.1:\d+", line)
            if found and self.url is None:
                self.url = found.group(0)

    def log(self):
        return "".join(self.lines)

    def wait_ready(self):
        end = time.monotonic() + READY_WITHIN_S
        while time.monotonic() < end:
            assert self.process.poll() is None, f"exit {self.process.returncode}\n{self.log()}"
            if self.url:
                try:
                    with urllib.request.urlopen(self.url + "/readyz", timeout=5):
                        return self
                except (urllib.error.URLError, ConnectionError):
                    pass
            time.sleep(0.05)
        raise AssertionError(f"not ready after {READY_WITHIN_S} s\n{self.log()}")

    def stop(self):
        self.process.terminate()
        try:
            return self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"SIGTERM did not end the server\n{self.log()}")


@pytest.fixture(scope="session")
def server():
    running = Server().wait_ready()
    yield running
    assert running.process.poll() is None, f"the server died, exit {running.process.returncode}\n{running.log()}"
    assert running.stop() == 0, running.log()


@pytest.fixture(scope="session")
def url(server):
    return server.url


@pytest.fixture(scope="session")
def client(url):
    return openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0, timeout=60)


@pytest.fixture(scope="session")
def model(client):
    return client.models.list().data[0].id
