"""`godwit chat` against a server that plays back recorded streams."""

import http.server
import json
import os
import pty
import select
import subprocess
import threading
import time

import pytest

BINARY = os.environ["GODWIT_BINARY"]


def delta(finish=None, **fields):
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


class Player(http.server.BaseHTTPRequestHandler):
    """Answers the n-th chat request with the n-th script: a list of events, ("status", code, body), ("wait",), ("cut",) or ("hang up",)."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def send_json(self, status, body):
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        self.send_json(200, {"object": "list", "data": [{"id": "played", "object": "model"}]})

    def piece(self, data):
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(request)
        script = self.server.scripts[len(self.server.requests) - 1]
        if script[0] == ("hang up",):
            self.close_connection = True
            return
        if isinstance(script[0], tuple):
            return self.send_json(script[0][1], script[0][2])
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for event in script:
            if isinstance(event, tuple) and event[0] == "wait":
                self.server.waiting.set()
                # Until the client goes away.
                self.server.client_left.append(self.connection.recv(1) == b"")
                self.close_connection = True
                return
            if isinstance(event, tuple) and event[0] == "cut":
                self.close_connection = True
                return
            text = event if isinstance(event, str) else "data: " + json.dumps(event) + "\n\n"
            data = text.encode()
            self.piece(data[: len(data) // 2])  # events cut anywhere
            self.piece(data[len(data) // 2 :])
        self.piece(b"data: [DONE]\n\n")
        self.wfile.write(b"0\r\n\r\n")


@pytest.fixture
def play():
    servers = []

    def start(*scripts):
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Player)
        server.scripts, server.requests, server.client_left, server.waiting = scripts, [], [], threading.Event()
        server.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def chat(server, text, *args):
    return subprocess.run([BINARY, "chat", "--url", server.url, *args], input=text, capture_output=True, text=True, timeout=60)


ANSWER = [delta(role="assistant", content=""), delta(reasoning_content="One and ", reasoning="One and "), delta(reasoning_content="one."), delta(content="Tw"), ": ping\n\n", delta(content="ö €"), delta("stop")]


def test_a_script_gets_the_answer_alone(play):
    server = play(ANSWER)
    out = chat(server, "1+1?\n")
    assert (out.returncode, out.stdout, out.stderr) == (0, "Twö €\n", "")
    assert server.requests[0]["messages"] == [{"role": "user", "content": "1+1?"}]
    assert server.requests[0]["model"] == "played" and server.requests[0]["stream"] is True
    assert "temperature" not in server.requests[0] and "reasoning_effort" not in server.requests[0]


def test_the_conversation_is_kept_and_forgotten(play):
    server = play(ANSWER, ANSWER, ANSWER)
    chat(server, "a\nb\n/new\nc", "--system", "Be brief.", "--effort", "low", "--temperature", "0")
    assert [len(r["messages"]) for r in server.requests] == [2, 4, 2]
    assert server.requests[1]["messages"][2] == {"role": "assistant", "content": "Twö €", "reasoning_content": "One and one."}
    assert server.requests[2]["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "c"}]
    assert server.requests[0]["reasoning_effort"] == "low" and server.requests[0]["temperature"] == 0


def test_tool_calls_are_shown_and_their_results_asked_for(play, tmp_path):
    call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": ""}}
    first = [delta(tool_calls=[call]), delta(tool_calls=[{"index": 0, "function": {"arguments": '{"city": '}}]), delta(tool_calls=[{"index": 0, "function": {"arguments": '"Oslo"}'}}]), delta("tool_calls")]
    server = play(first, ANSWER)
    tools = tmp_path / "tools.json"
    tools.write_text(json.dumps([{"type": "function", "function": {"name": "get_weather"}}]))
    out = chat(server, 'weather?\n{"sky": "grey"}\n', "--tools", str(tools))
    assert out.stdout == '-> get_weather({"city": "Oslo"})\nTwö €\n', out
    sent = server.requests[1]["messages"]
    assert sent[1]["tool_calls"][0] == {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
    assert sent[2] == {"role": "tool", "tool_call_id": "call_1", "content": '{"sky": "grey"}'}


@pytest.mark.parametrize(
    "script, said",
    [
        ([("status", 429, {"error": {"message": "256 requests are waiting", "type": "rate_limit_error"}})], "429: 256 requests are waiting"),
        ([delta(content="Tw"), {"error": {"message": "the engine stopped"}}], "the engine stopped"),
        ([delta(content="Tw"), ("cut",)], "the connection ended in the middle of a reply"),
        ([("hang up",)], "the connection ended in the middle of a reply"),
        ([delta(content="Tw")], "without a finish_reason"),
        (["data: {broken\n\n", delta("stop")], "no JSON"),
    ],
)
def test_errors_are_readable(play, script, said):
    out = chat(play(script), "hello\n")
    assert out.returncode == 1, out
    assert said in out.stderr


@pytest.mark.parametrize("url, code", [("https://a", 2), ("http://a:0", 2), ("http://:1", 2), ("http://a/b", 2), ("http://127.0.0.1:1", 1)])
def test_bad_addresses(url, code):
    out = subprocess.run([BINARY, "chat", "--url", url], input="", capture_output=True, text=True, timeout=60)
    assert out.returncode == code and "--url" in out.stderr, out


class Terminal:
    def __init__(self, *command):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.execv(command[0], command)
        self.seen = ""

    def expect(self, text):
        end = time.monotonic() + 60
        while text not in self.seen:
            assert time.monotonic() < end, f"no {text!r} in {self.seen!r}"
            if select.select([self.fd], [], [], 0.2)[0]:
                self.seen += os.read(self.fd, 65536).decode()
        before, _, self.seen = self.seen.partition(text)
        return before

    def send(self, text):
        os.write(self.fd, text.encode())

    def exit_code(self):
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_a_person_sees_thinking_dimmed_and_can_stop_an_answer(play):
    server = play([delta(reasoning_content="Hm"), delta(content="First"), ("wait",)], ANSWER)
    terminal = Terminal(BINARY, "chat", "--url", server.url)
    terminal.expect("played at")
    terminal.expect("> ")
    terminal.send("count\n")
    terminal.expect("\x1b[2mHm\x1b[0m")
    terminal.expect("First")
    assert server.waiting.wait(10)
    terminal.send("\x03")
    terminal.expect("[stopped]")
    terminal.expect("> ")
    terminal.send("half a line\x03")  # at the prompt Ctrl-C drops the line, not the program
    terminal.expect("> ")
    terminal.send("again\n")
    terminal.expect("Twö €")
    terminal.send("/exit\n")
    assert terminal.exit_code() == 0
    assert server.client_left == [True]  # the server could cancel
    assert [m["content"] for m in server.requests[1]["messages"]] == ["count", "First", "again"]
