// Status line and headers of an answer (api spec §4.1).
#pragma once

#include <string>
#include <string_view>

#include "server/http.h"

namespace godwit::server {

// What the head says besides the response itself.
struct HeadFacts {
  std::string_view request_id;
  const Headers& added_headers;
  int64_t processing_ms = 0;
  bool http_1_0 = false;
  bool close = false;     // the connection ends after this answer
  bool streamed = false;  // an event stream of unknown length: chunked, or until the end for HTTP/1.0
};

void append_response_head(std::string& out, const HttpResponse& response, const HeadFacts& facts);

}  // namespace godwit::server
