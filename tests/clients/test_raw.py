"""Raw HTTP: what curl, probes and careless clients send."""

import json
import socket
import urllib.error
import urllib.request
from urllib.parse import urlsplit

import pytest

CHAT = {"messages": [{"role": "user", "content": "List 3 tools."}], "temperature": 0, "chat_template_kwargs": {"enable_thinking": False}}


def call(url, path, body=None, method=None, headers=None):
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data=data, method=method, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, reply.headers, reply.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read()


def exchange(url, raw, read_all=True):
    """Sends bytes as they are, returns all the server answers until it closes or is silent for 10 s."""
    address = urlsplit(url)
    with socket.create_connection((address.hostname, address.port), timeout=60) as connection:
        connection.sendall(raw)
        received = b""
        while read_all or b"\r\n\r\n" not in received:
            piece = connection.recv(65536)
            if not piece:
                break
            received += piece
        return received


def test_a_curl_without_model_or_content_type_works(url):
    status, headers, body = call(url, "/v1/chat/completions", CHAT)
    assert status == 200 and json.loads(body)["choices"][0]["message"]["content"].strip() == "hammer, saw, drill."
    assert headers["x-request-id"]
    status, headers, _ = call(url, "/v1/chat/completions", CHAT, headers={"x-request-id": "mine-7"})
    assert headers["x-request-id"] == "mine-7"


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/health", "/startupz", "/v1/models", "/server_info", "/"])
def test_probes_and_pages_answer(url, path):
    assert call(url, path)[0] == 200


def test_metrics_count_requests(url):
    call(url, "/v1/chat/completions", CHAT)
    status, _, body = call(url, "/metrics")
    assert status == 200 and b"# TYPE " in body


def test_a_stream_is_whole_events_and_ends_with_done(url):
    status, headers, body = call(url, "/v1/chat/completions", {**CHAT, "stream": True})
    assert status == 200 and headers["Content-Type"].startswith("text/event-stream")
    events = [e for e in body.decode().split("\n\n") if e and not e.startswith(":")]
    assert events[-1] == "data: [DONE]"
    for event in events[:-1]:
        assert event.startswith("data: ") and "\n" not in event
        assert json.loads(event[6:])["object"] == "chat.completion.chunk"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"messages": "hello"}',
        b'{"messages": [{"role": "user", "content": "\xff"}]}',
        b'{"messages": [{"role": "user", "content": "x"}], "temperature": NaN}',
        b'{"messages": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_a_bad_body_is_a_400_in_openai_shape(url, body):
    status, _, reply = call(url, "/v1/chat/completions", body, method="POST", headers={"Content-Type": "application/json"})
    error = json.loads(reply)["error"]
    assert status == 400 and error["type"] == "invalid_request_error" and error["message"]


def test_wrong_paths_and_methods(url):
    status, _, body = call(url, "/v1/nothing")
    assert status == 404 and json.loads(body)["error"]["message"]
    status, headers, _ = call(url, "/v1/chat/completions")
    assert status == 405 and "POST" in headers["Allow"]


def test_limits_on_headers_and_bodies(url):
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
    assert b" 413 " in exchange(url, head + b"Content-Length: 99999999999\r\n\r\n", read_all=False)[:20]
    assert b" 431 " in exchange(url, head + b"X-Big: " + b"a" * 1_000_000 + b"\r\n\r\n", read_all=False)[:20]
    assert b" 400 " in exchange(url, b"NONSENSE\r\n\r\n", read_all=False)[:20]


def test_a_client_that_leaves_is_cancelled_and_others_go_on(url):
    body = json.dumps({**CHAT, "stream": True, "ignore_eos": True, "max_tokens": 2000}).encode()
    request = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    address = urlsplit(url)
    for _ in range(8):
        with socket.create_connection((address.hostname, address.port), timeout=60) as connection:
            connection.sendall(request)
            assert connection.recv(100).startswith(b"HTTP/1.1 200")
    status, _, reply = call(url, "/v1/chat/completions", CHAT)
    assert status == 200 and json.loads(reply)["choices"][0]["finish_reason"] == "stop"
