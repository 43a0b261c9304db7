// Bodies that are no JSON object, or one that would cost too much to read.
#include "bad_requests.h"

namespace godwit::server::testing {
namespace {

std::string repeat(std::string_view piece, size_t times) {
  std::string out;
  out.reserve(piece.size() * times);
  for (size_t i = 0; i < times; ++i) out += piece;
  return out;
}

}  // namespace

BadTable bad_chat_bodies() {
  return {"chat",
          "/v1/chat/completions",
          {
              {"(body)", "missing", "", "no body"},
              {"(body)", "blank", " \t\r\n", "no body"},
              {"(body)", "cut after its first byte", "{", "not valid JSON"},
              {"(body)", "cut inside a string", R"({"messages":[{"role":"us)", "not valid JSON"},
              {"(body)", "an array", "[]", "must be a JSON object, got an array"},
              {"(body)", "a string", R"("text")", "must be a JSON object, got \"text\""},
              {"(body)", "null", "null", "must be a JSON object, got null"},
              {"(body)", "a number", "7", "must be a JSON object, got 7"},
              {"(body)", "plain text", "Hi there", "not valid JSON"},
              {"(body)", "a form", "model=tiny&prompt=Hi", "not valid JSON"},
              {"(body)", "single quotes", "{'messages':[]}", "not valid JSON"},
              {"(body)", "a key without quotes", "{messages:[]}", "not valid JSON"},
              {"(body)", "a trailing comma", R"({"stream":true,})", "not valid JSON"},
              {"(body)", "a comment", R"({/* none */"stream":true})", "not valid JSON"},
              {"(body)", "text after the object", R"({"stream":true} x)", "not valid JSON"},
              {"(body)", "two objects", R"({"stream":true}{"stream":true})", "not valid JSON"},
              {"(body)", "Python's True", R"({"stream":True})", "not valid JSON"},
              {"(body)", "a number with a leading zero", R"({"n":01})", "not valid JSON"},
              {"(body)", "a number that ends in a point", R"({"temperature":1.})", "not valid JSON"},
              {"(body)", "a number beyond any float", R"({"temperature":1e999})", "not valid JSON"},
              {"(body)", "a line break inside a string", "{\"user\":\"a\nb\"}", "not valid JSON"},
              {"(body)", "an unknown escape", R"({"user":"\q"})", "not valid JSON"},
              {"(body)", "a NUL byte", std::string("{\"user\":\"a\0b\"}", 14), "not valid JSON"},
              {"(body)", "broken UTF-8", "{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}",
               "not valid JSON"},
              {"(body)", "UTF-16", std::string("\xff\xfe{\0}\0", 6), "not valid JSON"},
              {"(body)", "arrays 5,000 deep", std::string(5000, '['), "deeper than the limit of 64"},
              {"(body)", "objects 70 deep",
               R"({"metadata":)" + repeat(R"({"a":)", 70) + "1" + std::string(71, '}'), "deep"},
              {"(body)", "4,000,001 values", R"({"metadata":[)" + repeat("0,", 4'000'000) + "0]}",
               "more than 4000000 values"},
          }};
}

}  // namespace godwit::server::testing
