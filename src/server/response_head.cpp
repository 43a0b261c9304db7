#include "server/response_head.h"

#include <fmt/format.h>

#include <ctime>
#include <iterator>

namespace godwit::server {
namespace {

void append_date(std::string& out) {
  thread_local std::time_t at = 0;
  thread_local char text[40];
  const std::time_t now = std::time(nullptr);
  if (now != at) {
    std::tm tm{};
    gmtime_r(&now, &tm);
    std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    at = now;
  }
  out += text;
}

}  // namespace

void append_response_head(std::string& out, const HttpResponse& response, const HeadFacts& facts) {
  fmt::format_to(std::back_inserter(out), "HTTP/1.1 {} {}\r\nDate: ", response.status,
                 reason_phrase(response.status));
  append_date(out);
  // OpenAI's clients read the one, Anthropic's the other.
  fmt::format_to(
      std::back_inserter(out),
      "\r\nServer: godwit\r\nx-request-id: {0}\r\nrequest-id: {0}\r\nopenai-processing-ms: {1}\r\n",
      facts.request_id, facts.processing_ms);
  for (const Headers* headers : {&facts.added_headers, &response.headers}) {
    for (const auto& [name, value] : *headers)
      fmt::format_to(std::back_inserter(out), "{}: {}\r\n", name, value);
  }
  if (facts.streamed) {
    out +=
        "Content-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\nX-Accel-Buffering: "
        "no\r\n";
    if (!facts.http_1_0) out += "Transfer-Encoding: chunked\r\n";
  } else if (response.status != 204) {
    fmt::format_to(std::back_inserter(out), "Content-Type: {}\r\nContent-Length: {}\r\n",
                   response.content_type, response.body.size());
  }
  if (facts.close) {
    out += "Connection: close\r\n";
  } else if (facts.http_1_0) {
    out += "Connection: keep-alive\r\n";
  }
  out += "\r\n";
}

}  // namespace godwit::server
