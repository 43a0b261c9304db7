// The table of bad requests, by route. bad_requests_test.cpp sends every row to one server.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace godwit::server::testing {

struct BadRequest {
  // The member at fault as error.param names it, with [] for every index; in round brackets when it is no
  // member of a body and error.param is null.
  std::string_view field;
  std::string_view fault;  // what is wrong with it; a field has each fault once on a route
  std::string send;        // the body, or all bytes of a connection when the table has no path
  std::string_view says;   // part of error.message
  int status = 400;
};

// In what form a route writes its errors.
enum class ErrorShape : uint8_t { openai, anthropic };

struct BadTable {
  std::string_view route;  // a name for messages
  std::string_view path;   // of a POST; empty: rows are raw bytes
  std::vector<BadRequest> rows;
  ErrorShape shape = ErrorShape::openai;
};

BadTable bad_chat_bodies();    // what is no JSON object, on the chat route
BadTable bad_chat_messages();  // messages and tools
BadTable bad_chat_fields();    // the other members
BadTable bad_structured();     // response_format, grammars, tool_choice, continued messages
BadTable bad_completions();    // /v1/completions
BadTable bad_tokenize();       // /tokenize
BadTable bad_detokenize();     // /detokenize
BadTable bad_messages();       // /v1/messages
BadTable bad_count_tokens();   // /v1/messages/count_tokens
BadTable bad_responses();      // /v1/responses
BadTable bad_embeddings();     // /v1/embeddings
BadTable bad_http();           // request lines, headers, framing

}  // namespace godwit::server::testing
