// Request lines, headers and framing: raw bytes of one connection. A row may end in the middle of a request
// when what came is already wrong.
#include <fmt/format.h>

#include "bad_requests.h"

namespace godwit::server::testing {
namespace {

std::string line(std::string_view request_line) {
  return fmt::format("{}\r\nHost: x\r\n\r\n", request_line);
}
// A chat request with these header lines and bytes after the head.
std::string post(std::string_view headers, std::string_view body = {}) {
  return fmt::format("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n{}\r\n{}", headers, body);
}
std::string chunked(std::string_view chunks) {
  return post("Transfer-Encoding: chunked\r\n", chunks);
}
std::string get(std::string_view headers) {
  return fmt::format("GET /v1/models HTTP/1.1\r\n{}\r\n", headers);
}

std::string many_headers(size_t count) {
  std::string out = "Host: x\r\n";
  for (size_t i = 0; i < count; ++i) out += fmt::format("X-{}: {}\r\n", i, i);
  return out;
}

constexpr std::string_view kNotHttp = "not a valid HTTP/1.1 request";
constexpr std::string_view kHeaderLimit = "exceed the limit of 32768 bytes";

std::vector<BadRequest> request_lines() {
  return {
      {"(request line)", "a word", "NONSENSE\r\n\r\n", kNotHttp},
      {"(request line)", "a TLS hello",
       std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 15), kNotHttp},
      {"(request line)", "an SSH greeting", "SSH-2.0-OpenSSH_9.2\r\n\r\n", kNotHttp},
      {"(request line)", "a JSON body alone", "{\"messages\":[]}\r\n\r\n", kNotHttp},
      {"(request line)", "two spaces", line("GET  /livez HTTP/1.1"), kNotHttp},
      {"(request line)", "a space in the path", line("GET /li vez HTTP/1.1"), kNotHttp},
      {"(request line)", "a tab for a space", line("GET\t/livez HTTP/1.1"), kNotHttp},
      {"(request line)", "100,000 bytes", line("GET /" + std::string(100'000, 'a') + " HTTP/1.1"),
       kHeaderLimit, 431},
      {"(version)", "missing", line("GET /livez"), kNotHttp},
      {"(version)", "9.9", line("GET /livez HTTP/9.9"), kNotHttp},
      {"(version)", "2.0 with the preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", kNotHttp},
      {"(version)", "in small letters", line("GET /livez http/1.1"), kNotHttp},
      {"(version)", "another protocol", line("GET /livez ICAP/1.0"), kNotHttp},
      {"(version)", "with two digits", line("GET /livez HTTP/1.10"), kNotHttp},
      {"(method)", "GET on a POST route", line("GET /v1/chat/completions HTTP/1.1"), "allowed: POST", 405},
      {"(method)", "DELETE on a POST route", line("DELETE /v1/completions HTTP/1.1"), "allowed: POST", 405},
      {"(method)", "PUT on a POST route", line("PUT /tokenize HTTP/1.1"), "PUT is not allowed for /tokenize",
       405},
      {"(method)", "POST on a GET route", line("POST /v1/models HTTP/1.1"), "allowed: GET, HEAD", 405},
      {"(method)", "DELETE on a GET route", line("DELETE /metrics HTTP/1.1"), "allowed: GET, HEAD", 405},
      {"(method)", "PATCH on a probe", line("PATCH /livez HTTP/1.1"), "allowed: GET, HEAD", 405},
      {"(method)", "in small letters", line("get /livez HTTP/1.1"), "get is not allowed", 405},
      {"(method)", "unknown", line("BREW /v1/models HTTP/1.1"), "BREW is not allowed", 405},
      {"(method)", "20,000 bytes", line(std::string(20'000, 'A') + " /livez HTTP/1.1"), "AAA… is not allowed",
       405},
      {"(method)", "TRACE", line("TRACE / HTTP/1.1"), "TRACE is not allowed", 405},
      {"(path)", "unknown", line("GET /v2/nothing HTTP/1.1"), "there is nothing at GET /v2/nothing", 404},
      {"(path)", "out of the root", line("GET /../../etc/passwd HTTP/1.1"), "there is nothing at", 404},
      {"(path)", "out of the root, escaped", line("GET /%2e%2e/%2e%2e/etc/passwd HTTP/1.1"),
       "there is nothing at", 404},
      {"(path)", "a broken escape", line("GET /%zz HTTP/1.1"), "/%zz", 404},
      {"(path)", "an escaped NUL", line("GET /livez%00 HTTP/1.1"), "there is nothing at", 404},
      {"(path)", "in capitals", line("GET /V1/MODELS HTTP/1.1"), "/V1/MODELS", 404},
      {"(path)", "a route with more after it", line("GET /livez/extra HTTP/1.1"), "/livez/extra", 404},
      {"(path)", "no UTF-8", line("GET /\xff\xfe HTTP/1.1"), "there is nothing at", 404},
      {"(path)", "a proxy's tunnel", line("CONNECT example.org:443 HTTP/1.1"), "CONNECT is not allowed", 405},
      {"(path)", "20,000 bytes", line("GET /" + std::string(20'000, 'a') + " HTTP/1.1"), "aaa…", 404},
      {"model", "unknown in a path", line("GET /v1/models/nobody HTTP/1.1"), "\"nobody\" is not served here",
       404},
      {"model", "no UTF-8 in a path", line("GET /v1/models/%ff%fe HTTP/1.1"), "is not served here", 404},
      {"model", "20,000 bytes in a path", line("GET /v1/models/" + std::string(20'000, 'a') + " HTTP/1.1"),
       "a string of 20000 bytes", 404},
  };
}

std::vector<BadRequest> headers() {
  return {
      {"host", "missing", get(""), "one Host header, got 0"},
      {"host", "twice", get("Host: x\r\nHost: y\r\n"), "one Host header, got 2"},
      {"(header)", "without a colon", get("Host: x\r\nnonsense\r\n"), kNotHttp},
      {"(header)", "without a name", get("Host: x\r\n: y\r\n"), kNotHttp},
      {"(header)", "a space before the colon", get("Host: x\r\nX-A : y\r\n"), kNotHttp},
      {"(header)", "a space in its name", get("Host: x\r\nX A: y\r\n"), kNotHttp},
      {"(header)", "a NUL in its value", get(std::string("Host: x\r\nX-A: a\0b\r\n", 20)), kNotHttp},
      {"(header)", "a control character in its value", get("Host: x\r\nX-A: a\x02\r\n"), kNotHttp},
      {"(header)", "a carriage return alone", get("Host: x\r\nX-A: a\rb\r\n"), kNotHttp},
      {"(header)", "non-ASCII in its name", get("Host: x\r\nX-\xc3\xa9: a\r\n"), kNotHttp},
      {"(header)", "40,000 bytes", get("Host: x\r\nX-A: " + std::string(40'000, 'a') + "\r\n"), kHeaderLimit,
       431},
      {"(header)", "40,000 bytes of name", get("Host: x\r\n" + std::string(40'000, 'a') + ": a\r\n"),
       kHeaderLimit, 431},
      {"(header)", "5,000 of them", get(many_headers(5000)), kHeaderLimit, 431},
      {"(header)", "40,000 bytes without an end",
       "GET /livez HTTP/1.1\r\nHost: x\r\nX-A: " + std::string(40'000, 'a'), kHeaderLimit, 431},
      {"content-encoding", "gzip", post("Content-Encoding: gzip\r\nContent-Length: 2\r\n", "{}"), "'gzip'",
       415},
      {"content-encoding", "br after identity",
       post("Content-Encoding: identity\r\nContent-Encoding: br\r\nContent-Length: 2\r\n", "{}"), "'br'",
       415},
      {"content-encoding", "bytes that are no text",
       post("Content-Encoding: \xff\r\nContent-Length: 2\r\n", "{}"), "must not be encoded", 415},
      {"content-encoding", "two in one line",
       post("Content-Encoding: gzip, br\r\nContent-Length: 2\r\n", "{}"), "'gzip, br'", 415},
  };
}

std::vector<BadRequest> framing() {
  return {
      {"(content-length)", "negative", post("Content-Length: -5\r\n"), kNotHttp},
      {"(content-length)", "with a plus sign", post("Content-Length: +3\r\n", "{ }"), kNotHttp},
      {"(content-length)", "hexadecimal", post("Content-Length: 0x3\r\n", "{ }"), kNotHttp},
      {"(content-length)", "empty", post("Content-Length: \r\n"), kNotHttp},
      {"(content-length)", "a word", post("Content-Length: all\r\n"), kNotHttp},
      {"(content-length)", "a fraction", post("Content-Length: 3.0\r\n", "{ }"), kNotHttp},
      {"(content-length)", "beyond 64 bits", post("Content-Length: 99999999999999999999999\r\n"), kNotHttp},
      {"(content-length)", "two that differ", post("Content-Length: 2\r\nContent-Length: 3\r\n", "{ }"),
       kNotHttp},
      {"(content-length)", "a list that differs", post("Content-Length: 2, 3\r\n", "{ }"), kNotHttp},
      {"(content-length)", "beside chunks",
       post("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), kNotHttp},
      {"(content-length)", "a byte above the limit", post("Content-Length: 67108865\r\n"),
       "limit of 67108864 bytes", 413},
      {"(content-length)", "a terabyte", post("Content-Length: 1099511627776\r\n"), "limit of 67108864 bytes",
       413},
      {"transfer-encoding", "gzip", post("Transfer-Encoding: gzip\r\n", "{}"), "got 'gzip'"},
      {"transfer-encoding", "gzip, then chunked", post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"),
       "'gzip, chunked'"},
      {"transfer-encoding", "chunked, then identity",
       post("Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n"), "'chunked, identity'"},
      {"transfer-encoding", "unknown", post("Transfer-Encoding: xchunked\r\n", "0\r\n\r\n"), "'xchunked'"},
      {"transfer-encoding", "empty", post("Transfer-Encoding: \r\n", "{}"), "got ''"},
      {"(transfer-encoding)", "twice",
       post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), kNotHttp},
      {"transfer-encoding", "in HTTP/1.0",
       "POST /v1/chat/completions HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
       "HTTP/1.0 has no"},
      {"(chunk)", "a size that is no number", chunked("ZZ\r\n{}\r\n0\r\n\r\n"), kNotHttp},
      {"(chunk)", "a negative size", chunked("-2\r\n{}\r\n0\r\n\r\n"), kNotHttp},
      {"(chunk)", "an empty size", chunked("\r\n{}\r\n0\r\n\r\n"), kNotHttp},
      {"(chunk)", "a size beyond 64 bits", chunked("fffffffffffffffff\r\n{}\r\n0\r\n\r\n"), kNotHttp},
      {"(chunk)", "data longer than its size", chunked("1\r\n{}\r\n0\r\n\r\n"), kNotHttp},
      {"(chunk)", "a size with a prefix", chunked("0x2\r\n{}\r\n0\r\n\r\n"), kNotHttp},
      {"(chunk)", "a size above the limit", chunked("4000001\r\n{}"), "limit of 67108864 bytes", 413},
      {"(chunk)", "an extension of 40,000 bytes", chunked("2;x=" + std::string(40'000, 'a')), "32768 bytes",
       431},
      {"(chunk)", "trailers of 40,000 bytes", chunked("0\r\nX-T: " + std::string(40'000, 'a')), "32768 bytes",
       431},
  };
}

}  // namespace

BadTable bad_http() {
  BadTable table{"http", "", request_lines()};
  for (auto* more : {headers, framing})
    for (BadRequest& row : more()) table.rows.push_back(std::move(row));
  return table;
}

}  // namespace godwit::server::testing
