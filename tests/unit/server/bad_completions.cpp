// /v1/completions: its prompt, its own members, and that the shared ones are checked there too.
#include <fmt/format.h>

#include "bad_requests.h"

namespace godwit::server::testing {
namespace {

std::string prompt(std::string_view value) {
  return fmt::format(R"({{"prompt":{}}})", value);
}
std::string with(std::string_view members) {
  return fmt::format(R"({{"prompt":"Hi",{}}})", members);
}

std::string many(std::string_view item, size_t count) {
  std::string out = "[";
  for (size_t i = 0; i < count; ++i) out += (i > 0 ? "," : "") + std::string(item);
  return out + "]";
}

}  // namespace

BadTable bad_completions() {
  return {
      "completions",
      "/v1/completions",
      {
          {"(body)", "an array of requests", R"([{"prompt":"Hi"}])", "must be a JSON object"},
          {"(body)", "JSON lines", "{\"prompt\":\"a\"}\n{\"prompt\":\"b\"}", "not valid JSON"},
          {"prompt", "missing", "{}", "prompt is required"},
          {"prompt", "null", prompt("null"), "prompt is required"},
          {"prompt", "an empty string", prompt(R"("")"), "must not be empty"},
          {"prompt", "an empty list", prompt("[]"), "not empty"},
          {"prompt", "an object", prompt(R"({"a":1})"), "must be a string"},
          {"prompt", "a number", prompt("7"), "got 7"},
          {"prompt", "129 items", prompt(many(R"("a")", 129)), "at most 128"},
          {"prompt[]", "an empty list", prompt("[[]]"), "must not be empty"},
          {"prompt[]", "an empty string", prompt(R"(["a",""])"), "must not be empty"},
          {"prompt[]", "a negative id", prompt("[1,-1]"), "got -1"},
          {"prompt[]", "an id outside the vocabulary", prompt("[1,154880]"), "got 154880"},
          {"prompt[]", "an id that has no token", prompt("[1,2559]"), "got 2559"},
          {"prompt[]", "an id beyond 64 bits", prompt("[1,123456789012345678901]"), "123456789012345678901"},
          {"prompt[]", "a string among ids", prompt(R"([1,"a"])"), "token id"},
          {"prompt[]", "an id among strings", prompt(R"(["a",1])"), "a string or a list"},
          {"prompt[]", "a fraction", prompt("[1,1.5]"), "got 1.5"},
          {"prompt[]", "null", prompt("[null]"), "got null"},
          {"prompt[]", "an object", prompt(R"([{"text":"Hi"}])"), "got an object"},
          {"prompt[][]", "a negative id", prompt("[[5],[1,-7]]"), "got -7"},
          {"prompt[][]", "a string", prompt(R"([[1,"a"]])"), "got \"a\""},
          {"prompt[][]", "a list", prompt("[[1,[2]]]"), "an array of 1 items"},
          {"logprobs", "above 20", with(R"("logprobs":21)"), "at most 20"},
          {"logprobs", "negative", with(R"("logprobs":-1)"), "at least 0"},
          {"logprobs", "true", with(R"("logprobs":true)"), "must be an integer"},
          {"best_of", "below n", with(R"("best_of":2,"n":3)"), "n asks for 3"},
          {"best_of", "above 16", with(R"("best_of":17)"), "at most 16"},
          {"best_of", "above n in a stream", with(R"("best_of":2,"stream":true)"), "stream"},
          {"max_tokens", "0 without echo", with(R"("max_tokens":0)"), "at least 1"},
          {"best_of", "0", with(R"("best_of":0)"), "at least 1"},
          {"best_of", "a string", with(R"("best_of":"3")"), "must be an integer"},
          {"suffix", "a string", with(R"("suffix":"x")"), "not supported"},
          {"echo", "a string", with(R"("echo":"yes")"), "true or false"},
          {"temperature", "null in quotes", with(R"("temperature":"null")"), "must be a number"},
          {"max_tokens", "below the smallest integer", with(R"("max_tokens":-9223372036854775809)"),
           "at least"},
          {"n", "2,048 answers in all", R"({"n":16,"prompt":)" + many(R"("a")", 128) + "}",
           "2048 answers, at most 1024 can run and wait"},
          {"n", "100,000 digits", with(R"("n":)" + std::string(100'000, '9')), "a number of 100000 digits"},
          {"stop", "true", with(R"("stop":true)"), "must be a string"},
          {"stream_options", "an array", with(R"("stream":true,"stream_options":[])"), "must be an object"},
          {"model", "another server's", with(R"("model":"text-davinci-003")"), "text-davinci-003", 404},
          {"seed", "an object", with(R"("seed":{})"), "must be an integer"},
          {"logit_bias", "a string", with(R"("logit_bias":"5:1")"), "must be an object"},
          {"stop_token_ids[]", "null", with(R"("stop_token_ids":[null])"), "got null"},
      }};
}

}  // namespace godwit::server::testing
