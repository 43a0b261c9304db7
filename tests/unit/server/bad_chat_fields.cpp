// Sampling, stopping, streaming and thinking: the chat route's members beside messages and tools.
#include <fmt/format.h>

#include "bad_requests.h"

namespace godwit::server::testing {
namespace {

// A good chat request and these members.
std::string with(std::string_view members) {
  return fmt::format(R"({{"messages":[{{"role":"user","content":"Hi"}}],{}}})", members);
}

std::string many(std::string_view item, size_t count) {
  std::string out = "[";
  for (size_t i = 0; i < count; ++i) out += (i > 0 ? "," : "") + std::string(item);
  return out + "]";
}

std::string biases(size_t count) {
  std::string out = "{";
  for (size_t i = 0; i < count; ++i) out += fmt::format(R"({}"{}":1)", i > 0 ? "," : "", i);
  return out + "}";
}

std::vector<BadRequest> sampling() {
  return {
      {"temperature", "NaN", with(R"("temperature":NaN)"), "must be a finite number, got NaN"},
      {"temperature", "Infinity", with(R"("temperature":Infinity)"), "finite"},
      {"temperature", "-Infinity", with(R"("temperature": -Infinity)"), "got -Infinity"},
      {"temperature", "a string", with(R"("temperature":"hot")"), "must be a number, got \"hot\""},
      {"temperature", "a number in quotes", with(R"("temperature":"0.5")"), "must be a number, got \"0.5\""},
      {"temperature", "an array", with(R"("temperature":[1])"), "an array of 1 items"},
      {"temperature", "true", with(R"("temperature":true)"), "got true"},
      {"temperature", "above 2", with(R"("temperature":2.5)"), "at most 2, got 2.5"},
      {"temperature", "negative", with(R"("temperature":-1)"), "at least 0"},
      {"temperature", "the largest float", with(R"("temperature":1e308)"), "at most 2"},
      {"top_p", "0", with(R"("top_p":0)"), "greater than 0"},
      {"top_p", "negative", with(R"("top_p":-0.1)"), "greater than 0"},
      {"top_p", "above 1", with(R"("top_p":1.01)"), "at most 1"},
      {"top_p", "a string", with(R"("top_p":"all")"), "must be a number"},
      {"top_k", "below -1", with(R"("top_k":-2)"), "at least -1"},
      {"top_k", "a fraction", with(R"("top_k":1.5)"), "must be an integer, got 1.5"},
      {"top_k", "beyond 32 bits", with(R"("top_k":2147483648)"), "at most 2147483647"},
      {"top_k", "a string", with(R"("top_k":"5")"), "must be an integer"},
      {"min_p", "above 1", with(R"("min_p":2)"), "at most 1"},
      {"min_p", "negative", with(R"("min_p":-0.5)"), "at least 0"},
      {"min_p", "an object", with(R"("min_p":{})"), "got an object"},
      {"repetition_penalty", "0", with(R"("repetition_penalty":0)"), "at least 0.01"},
      {"repetition_penalty", "negative", with(R"("repetition_penalty":-1)"), "at least 0.01"},
      {"repetition_penalty", "too near to 0", with(R"("repetition_penalty":1e-40)"), "at least 0.01"},
      {"repetition_penalty", "above 100", with(R"("repetition_penalty":101)"), "at most 100"},
      {"repetition_penalty", "false", with(R"("repetition_penalty":false)"), "must be a number"},
      {"presence_penalty", "below -2", with(R"("presence_penalty":-3)"), "at least -2"},
      {"presence_penalty", "above 2", with(R"("presence_penalty":2.1)"), "at most 2"},
      {"presence_penalty", "a string", with(R"("presence_penalty":"x")"), "must be a number"},
      {"frequency_penalty", "below -2", with(R"("frequency_penalty":-2.5)"), "at least -2"},
      {"frequency_penalty", "above 2", with(R"("frequency_penalty":3)"), "at most 2"},
      {"frequency_penalty", "a string", with(R"("frequency_penalty":"x")"), "must be a number"},
      {"seed", "beyond 64 bits", with(R"("seed":123456789012345678901234567890)"),
       "at most 9223372036854775807"},
      {"seed", "a fraction", with(R"("seed":0.5)"), "must be an integer"},
      {"seed", "a string", with(R"("seed":"7")"), "must be an integer"},
      {"n", "0", with(R"("n":0)"), "at least 1"},
      {"n", "negative", with(R"("n":-1)"), "at least 1"},
      {"n", "above 16", with(R"("n":17)"), "at most 16"},
      {"n", "a fraction", with(R"("n":1.5)"), "must be an integer"},
      {"n", "a string", with(R"("n":"2")"), "must be an integer"},
      {"logit_bias", "a word for a key", with(R"("logit_bias":{"abc":1})"), "abc"},
      {"logit_bias", "an id outside the vocabulary", with(R"("logit_bias":{"99999999":1})"), "99999999"},
      {"logit_bias", "a negative id", with(R"("logit_bias":{"-1":1})"), "\"-1\""},
      {"logit_bias", "an id with text after it", with(R"("logit_bias":{"5 ":1})"), "\"5 \""},
      {"logit_bias", "an array", with(R"("logit_bias":[1])"), "must be an object"},
      {"logit_bias", "2,000 entries", with(R"("logit_bias":)" + biases(2000)), "entries, at most"},
      {"logit_bias.5", "above 100", with(R"("logit_bias":{"5":101})"), "-100 to 100"},
      {"logit_bias.5", "a string", with(R"("logit_bias":{"5":"1"})"), "must be a number"},
      {"logit_bias.5", "null", with(R"("logit_bias":{"5":null})"), "must be a number"},
      {"typical_p", "a number", with(R"("typical_p":0.9)"), "not supported"},
      {"bad_words", "a list", with(R"("bad_words":["x"])"), "not supported"},
      {"allowed_token_ids", "a list", with(R"("allowed_token_ids":[1])"), "not supported"},
      {"use_beam_search", "true", with(R"("use_beam_search":true)"), "not supported"},
      {"logits_processors", "a list", with(R"("logits_processors":["x"])"), "not supported"},
      {"prompt_logprobs", "a number", with(R"("prompt_logprobs":1)"), "not supported"},
      {"return_token_ids", "true", with(R"("return_token_ids":true)"), "not supported"},
  };
}

std::vector<BadRequest> limits() {
  return {
      {"max_tokens", "0", with(R"("max_tokens":0)"), "at least 1"},
      {"max_tokens", "negative", with(R"("max_tokens":-1)"), "at least 1"},
      {"max_tokens", "a fraction", with(R"("max_tokens":1.5)"), "must be an integer"},
      {"max_tokens", "a string", with(R"("max_tokens":"many")"), "must be an integer"},
      {"max_tokens", "beyond 64 bits", with(R"("max_tokens":18446744073709551616)"),
       "at most 9223372036854775807"},
      {"max_completion_tokens", "0", with(R"("max_completion_tokens":0)"), "at least 1"},
      {"max_completion_tokens", "negative", with(R"("max_completion_tokens":-5)"), "at least 1"},
      {"max_completion_tokens", "an array", with(R"("max_completion_tokens":[5])"), "must be an integer"},
      {"min_tokens", "negative", with(R"("min_tokens":-1)"), "at least 0"},
      {"min_tokens", "beyond the context", with(R"("min_tokens":4097)"), "at most 4096"},
      {"min_tokens", "above max_tokens", with(R"("min_tokens":9,"max_tokens":3)"), "more than the 3 tokens"},
      {"min_tokens", "a string", with(R"("min_tokens":"1")"), "must be an integer"},
      {"stop", "a number", with(R"("stop":7)"), "must be a string"},
      {"stop", "an object", with(R"("stop":{})"), "must be a string"},
      {"stop", "4,097 bytes", with(fmt::format(R"("stop":"{}")", std::string(4097, 'a'))), "at most 4096"},
      {"stop", "17 items", with(R"("stop":)" + many(R"("x")", 17)), "at most 16"},
      {"stop[]", "a number", with(R"("stop":["a",7])"), "must be a string"},
      {"stop[]", "an array", with(R"("stop":[["a"]])"), "must be a string"},
      {"stop[]", "4,097 bytes", with(fmt::format(R"("stop":["{}"])", std::string(4097, 'a'))),
       "at most 4096"},
      {"stop_token_ids", "a number", with(R"("stop_token_ids":5)"), "must be an array"},
      {"stop_token_ids", "257 items", with(R"("stop_token_ids":)" + many("5", 257)), "at most 256"},
      {"stop_token_ids[]", "outside the vocabulary", with(R"("stop_token_ids":[999999])"), "999999"},
      {"stop_token_ids[]", "negative", with(R"("stop_token_ids":[-1])"), "got -1"},
      {"stop_token_ids[]", "a string", with(R"("stop_token_ids":["5"])"), "got \"5\""},
      {"stop_token_ids[]", "a fraction", with(R"("stop_token_ids":[5.5])"), "got 5.5"},
      {"include_stop_str_in_output", "a string", with(R"("include_stop_str_in_output":"no")"),
       "true or false"},
      {"skip_special_tokens", "a number", with(R"("skip_special_tokens":1)"), "true or false"},
      {"ignore_eos", "a string", with(R"("ignore_eos":"true")"), "true or false"},
      {"priority", "a string", with(R"("priority":"high")"), "must be an integer"},
      {"priority", "beyond a million", with(R"("priority":1000001)"), "at most 1000000"},
      {"cache_salt", "a number", with(R"("cache_salt":5)"), "must be a string"},
      {"model", "a number", with(R"("model":7)"), "must be a string"},
      {"model", "an array", with(R"("model":["tiny"])"), "must be a string"},
      {"model", "not served", with(R"("model":"nobody")"), "\"nobody\" does not exist here; served: tiny",
       404},
      {"model", "in capitals", with(R"("model":"TINY")"), "\"TINY\"", 404},
      {"model", "100,000 bytes", with(fmt::format(R"("model":"{}")", std::string(100'000, 'm'))),
       "a string of 100000 bytes", 404},
  };
}

std::vector<BadRequest> answer_form() {
  return {
      {"stream", "a string", with(R"("stream":"yes")"), "true or false"},
      {"stream", "a number", with(R"("stream":1)"), "true or false"},
      {"stream_options", "without stream", with(R"("stream_options":{"include_usage":true})"),
       "stream is true"},
      {"stream_options", "a string", with(R"("stream":true,"stream_options":"usage")"), "must be an object"},
      {"stream_options.include_usage", "a number",
       with(R"("stream":true,"stream_options":{"include_usage":1})"), "true or false"},
      {"stream_options.continuous_usage_stats", "a string",
       with(R"("stream":true,"stream_options":{"continuous_usage_stats":"on"})"), "true or false"},
      {"logprobs", "a number", with(R"("logprobs":5)"), "true or false"},
      {"logprobs", "a string", with(R"("logprobs":"true")"), "true or false"},
      {"top_logprobs", "without logprobs", with(R"("top_logprobs":3)"), "logprobs is true"},
      {"top_logprobs", "above 20", with(R"("logprobs":true,"top_logprobs":21)"), "at most 20"},
      {"top_logprobs", "negative", with(R"("logprobs":true,"top_logprobs":-1)"), "at least 0"},
      {"top_logprobs", "a fraction", with(R"("logprobs":true,"top_logprobs":0.5)"), "must be an integer"},
      {"parallel_tool_calls", "a string", with(R"("parallel_tool_calls":"no")"), "true or false"},
      {"chat_template", "sent by a client", with(R"("chat_template":"{{ x }}")"), "not supported"},
      {"documents", "a list", with(R"("documents":[{"text":"x"}])"), "not supported"},
      {"echo", "true in a chat", with(R"("echo":true)"), "not supported"},
      {"resume", "an object", with(R"("resume":{"ids":[1]})"), "not supported"},
  };
}

std::vector<BadRequest> thinking() {
  return {
      {"reasoning_effort", "an unknown word", with(R"("reasoning_effort":"huge")"),
       "\"huge\"; it must be one of"},
      {"reasoning_effort", "a number", with(R"("reasoning_effort":3)"), "must be a string"},
      {"reasoning_effort", "empty", with(R"("reasoning_effort":"")"), "it must be one of"},
      {"reasoning", "a string", with(R"("reasoning":"high")"), "must be an object"},
      {"reasoning.effort", "an unknown word", with(R"("reasoning":{"effort":"much"})"), "\"much\""},
      {"reasoning.effort", "a number", with(R"("reasoning":{"effort":1})"), "must be a string"},
      {"reasoning.enabled", "a string", with(R"("reasoning":{"enabled":"no"})"), "true or false"},
      {"reasoning.exclude", "a number", with(R"("reasoning":{"exclude":1})"), "true or false"},
      {"thinking", "a string", with(R"("thinking":"on")"), "must be an object"},
      {"thinking", "a number", with(R"("thinking":1)"), "must be an object"},
      {"thinking.clear_thinking", "a string", with(R"("thinking":{"clear_thinking":"no"})"), "true or false"},
      {"enable_thinking", "a string", with(R"("enable_thinking":"false")"), "true or false"},
      {"include_reasoning", "a number", with(R"("include_reasoning":0)"), "true or false"},
      {"chat_template_kwargs", "a string", with(R"("chat_template_kwargs":"x")"), "must be an object"},
      {"chat_template_kwargs", "an array", with(R"("chat_template_kwargs":[])"), "must be an object"},
      {"chat_template_kwargs.enable_thinking", "a string",
       with(R"("chat_template_kwargs":{"enable_thinking":"no"})"), "true or false"},
      {"chat_template_kwargs.thinking", "a number", with(R"("chat_template_kwargs":{"thinking":0})"),
       "true or false"},
      {"chat_template_kwargs.reasoning_effort", "an unknown word",
       with(R"("chat_template_kwargs":{"reasoning_effort":"x"})"), "\"x\""},
      {"chat_template_kwargs.reasoning_effort", "a number",
       with(R"("chat_template_kwargs":{"reasoning_effort":2})"), "must be a string"},
      {"output_config.effort", "an unknown word", with(R"("output_config":{"effort":"x"})"), "\"x\""},
  };
}

}  // namespace

BadTable bad_chat_fields() {
  BadTable table{"chat", "/v1/chat/completions", sampling()};
  for (auto* more : {limits, answer_form, thinking})
    for (BadRequest& row : more()) table.rows.push_back(std::move(row));
  return table;
}

}  // namespace godwit::server::testing
