// Model output as text: the first byte picks the options, the second how the rest is cut. Streamed pieces
// must add up to the whole, arguments must be JSON objects, and the output must end as the contract says.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>

#include "base/json.h"
#include "chat/text_front_end.h"

namespace {

using namespace godwit::chat;

std::shared_ptr<const ToolSet> tools() {
  static const auto kTools = std::make_shared<const ToolSet>(
      godwit::parse_json(R"([{"function":{"name":"f","parameters":{"properties":{
          "s":{"type":"string"},"n":{"type":"integer"},"b":{"type":["boolean","null"]},"o":{"type":"object"},
          "a":{"type":"array","items":{"type":"number"}},"m":{"type":["string","integer"]}}}}},{"name":"g"}])")
          ->as_array());
  return kTools;
}

struct Output {
  Message message;
  Finish finish;
  bool operator==(const Output& o) const {
    if (message.tool_calls.size() != o.message.tool_calls.size()) return false;
    for (size_t i = 0; i < message.tool_calls.size(); ++i) {
      const ToolCall &x = message.tool_calls[i], &y = o.message.tool_calls[i];
      if (x.id != y.id || x.name != y.name || x.arguments != y.arguments || x.truncated != y.truncated)
        return false;
    }
    return message.reasoning == o.message.reasoning && message.content == o.message.content &&
           finish.reason == o.finish.reason && finish.stop_string == o.finish.stop_string;
  }
};

Output parse(std::string_view text, size_t piece, const ParserOptions& options, EndReason reason) {
  Output out;
  TextFrontEnd front(options);
  auto collect = [&] {
    for (const Delta& delta : front.parser().take()) apply(out.message, delta);
  };
  for (size_t at = 0; at < text.size(); at += piece) {
    front.push(text.substr(at, piece));
    collect();
  }
  front.end(reason);
  collect();
  out.finish = front.parser().finish();
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  ParserOptions options;
  options.thinking = (data[0] & 1) != 0;
  if ((data[0] & 2) == 0) options.tools = tools();
  options.parallel_tool_calls = (data[0] & 4) == 0;
  if ((data[0] & 8) != 0) options.stop = {"STOP", "\n\n", "<tool"};
  options.include_stop = (data[0] & 16) != 0;
  options.tool_choice = (data[0] & 64) != 0 ? ToolChoice::named : ToolChoice::automatic;
  const EndReason reason = (data[0] & 32) != 0 ? EndReason::length : EndReason::stop;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);

  const Output whole = parse(text, text.size() + 1, options, reason);
  if (!(whole == parse(text, 1 + data[1] % 32, options, reason))) std::abort();
  int complete = 0;
  for (const ToolCall& call : whole.message.tool_calls) {
    const auto arguments = godwit::parse_json(call.arguments);
    if (!arguments.ok() || !arguments->is_object()) std::abort();
    if (tools()->find(call.name) == nullptr) std::abort();
    complete += !call.truncated;
  }
  if (whole.finish.reason == FinishReason::tool_calls && complete == 0) std::abort();
  return 0;
}
