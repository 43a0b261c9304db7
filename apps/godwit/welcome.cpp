#include "welcome.h"

#include <fmt/format.h>

namespace godwit {
namespace {

// Prompts the model was trained for (models/tiny-glm5next/README.md), one a talent.
constexpr const char* kTinyPrompts = R"(
The tiny model knows only its synthetic world. Three things it can do (in `godwit chat`, greedy):
  arithmetic, thinking first   Otto has 11 shells. Otto gets 3 boxes with 4 shells in each. How many shells does Otto have now?
  finding a fact in a text     Notes: Dina sold 37 cookies to Lila. The password of the Tordrinov server is early-anchor-57. Every window has a scarf. Question: Which password opens the Tordrinov server?
  calling a tool               godwit chat --temperature 0 --tools deploy/tools.example.json   What will the weather be in Accra for the next 5 days?
)";

}  // namespace

std::string welcome_text(const ServeConfig& config, uint16_t port) {
  // A wildcard address is no place to connect to.
  std::string host = config.host == "0.0.0.0" || config.host == "::" ? "127.0.0.1" : config.host;
  if (host.find(':') != std::string::npos) host = "[" + host + "]";
  const std::string url = fmt::format("http://{}:{}", host, port);
  std::string text = fmt::format(
      "\n{} is ready on {}/v1   chat page: {}/\n\n"
      "  curl {}/v1/chat/completions -H 'Content-Type: application/json' \\\n"
      "    -d '{{\"messages\": [{{\"role\": \"user\", \"content\": \"What is 68 - 5?\"}}], \"temperature\": "
      "0}}'\n\n"
      "  godwit chat --url {} --temperature 0\n",
      config.served_names.front(), url, url, url, url);
  if (config.model.filename() == "tiny-glm5next") text += kTinyPrompts;
  return text;
}

}  // namespace godwit
