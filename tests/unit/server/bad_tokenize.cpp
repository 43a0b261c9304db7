// /tokenize, /detokenize, and the route that this model cannot serve.
#include "bad_requests.h"

namespace godwit::server::testing {

BadTable bad_tokenize() {
  return {
      "tokenize",
      "/tokenize",
      {
          {"(body)", "an empty array", "[ ]", "must be a JSON object"},
          {"prompt", "missing", "{}", "prompt or messages is required"},
          {"prompt", "a list", R"({"prompt":["a"]})", "must be a string"},
          {"prompt", "a number", R"({"prompt":5})", "must be a string"},
          {"content", "a number", R"({"content":5})", "must be a string"},
          {"messages", "an empty list", R"({"messages":[]})", "must not be empty"},
          {"messages", "true", R"({"messages":true})", "must be an array"},
          {"messages[].role", "null", R"({"messages":[{"role":null,"content":"Hi"}]})", "must be a string"},
          {"tools", "a number", R"({"messages":[{"role":"user","content":"Hi"}],"tools":7})",
           "must be a list"},
          {"reasoning_effort", "true",
           R"({"messages":[{"role":"user","content":"Hi"}],"reasoning_effort":true})", "must be a string"},
      }};
}

BadTable bad_detokenize() {
  return {"detokenize",
          "/v1/detokenize",
          {
              {"(body)", "a list of ids", "[1,2,3]", "must be a JSON object"},
              {"tokens", "missing", "{}", "tokens is required"},
              {"tokens", "null", R"({"tokens":null})", "tokens is required"},
              {"tokens", "a string", R"({"tokens":"1 2"})", "must be an array"},
              {"tokens", "a number", R"({"tokens":1})", "must be an array"},
              {"tokens[]", "outside the vocabulary", R"({"tokens":[99999999]})", "got 99999999"},
              {"tokens[]", "negative", R"({"tokens":[1,-1]})", "got -1"},
              {"tokens[]", "a string", R"({"tokens":["a"]})", "got \"a\""},
              {"tokens[]", "a fraction", R"({"tokens":[0.5]})", "got 0.5"},
              {"tokens[]", "null", R"({"tokens":[null]})", "got null"},
              {"tokens[]", "a list", R"({"tokens":[[1]]})", "an array of 1 items"},
          }};
}

BadTable bad_embeddings() {
  return {"embeddings",
          "/v1/embeddings",
          {{"(route)", "of another kind of model", R"({"input":"Hi"})", "has no embeddings", 501}}};
}

}  // namespace godwit::server::testing
