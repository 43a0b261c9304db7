// godwit chat: a conversation in the terminal with any OpenAI-compatible server.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>

#include "chat_events.h"
#include "commands.h"
#include "http_client.h"

namespace godwit {
namespace {

constexpr const char* kChatHelp =
    "  /new         forget the conversation\n"
    "  /effort E    none, low, high or max: how long to think; without E: the server's default\n"
    "  /exit        leave (or Ctrl-D)\n"
    "  Ctrl-C       stops the answer\n";

struct ChatConfig {
  std::string url = "http://127.0.0.1:8000";
  std::string system;
  std::string effort;
  std::string tools_file;
  std::optional<double> temperature;
  std::optional<int64_t> max_tokens;
};

class Chat {
 public:
  Chat(ChatConfig config, ServerAddress server)
      : config_(std::move(config)),
        server_(std::move(server)),
        person_(isatty(STDIN_FILENO) != 0),
        colours_(isatty(STDOUT_FILENO) != 0) {}

  int run();

 private:
  Result<void> greet();
  Result<void> read_tools();
  // One line of input without its end; nothing at the end of input. An interrupt clears the line.
  std::optional<std::string> read_line(const char* prompt);
  bool command(const std::string& line);  // false: leave
  // Sends the conversation and prints the answer; repeats while the model asks for tool results.
  int answer();
  Result<ChatAnswer> stream_answer();  // sets interrupted_
  void print_calls(const ChatAnswer& answer) const;
  void forget();
  const char* dim() const { return colours_ ? "\x1b[2m" : ""; }
  const char* plain() const { return colours_ ? "\x1b[0m" : ""; }

  ChatConfig config_;
  ServerAddress server_;
  bool person_;   // input is a terminal: prompts and hints are wanted
  bool colours_;  // output is a terminal
  InterruptScope interrupts_;
  std::string model_;
  Json tools_;
  JsonArray messages_;
  std::string typed_;  // read, not yet used
  bool input_ended_ = false;
  bool interrupted_ = false;
};

Result<void> Chat::read_tools() {
  if (config_.tools_file.empty()) return {};
  std::ifstream stream(config_.tools_file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  auto tools = parse_json(text);
  if (!tools.ok() || !tools->is_array()) {
    return make_error(ErrorCode::usage, "--tools", "{} must hold a JSON array of OpenAI tools{}{}",
                      config_.tools_file, tools.ok() ? "" : ": ", tools.ok() ? "" : tools.error().message);
  }
  tools_ = std::move(*tools);
  return {};
}

Result<void> Chat::greet() {
  GODWIT_ASSIGN(const HttpReply reply, http_request(server_, "/v1/models", "", interrupts_));
  auto models = parse_json(reply.body);
  const Json* list = models.ok() ? models->find("data") : nullptr;
  if (reply.status != 200 || list == nullptr || !list->is_array() || list->as_array().empty()) {
    return make_error(ErrorCode::unavailable, "--url", "{} answers /v1/models with {}: {}", config_.url,
                      reply.status, error_text(reply.body));
  }
  if (const Json* id = list->as_array()[0].find("id"); id != nullptr && id->is_string())
    model_ = id->as_string();
  if (person_) fmt::print("{} at {}   /exit leaves, /help lists the rest\n", model_, config_.url);
  return {};
}

std::optional<std::string> Chat::read_line(const char* prompt) {
  if (person_) {
    fmt::print("{}", prompt);
    std::fflush(stdout);
  }
  for (;;) {
    if (const size_t end = typed_.find('\n'); end != std::string::npos) {
      std::string line = typed_.substr(0, end);
      typed_.erase(0, end + 1);
      return line;
    }
    if (input_ended_) {
      if (typed_.empty()) return std::nullopt;
      return std::exchange(typed_, {});
    }
    if (interrupts_.wait_readable(STDIN_FILENO, -1) == InterruptScope::Wait::interrupted) {
      if (!person_) return std::nullopt;
      typed_.clear();
      fmt::print("\n{}", prompt);
      std::fflush(stdout);
      continue;
    }
    char buffer[4096];
    const ssize_t got = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) input_ended_ = true;
    if (got > 0) typed_.append(buffer, static_cast<size_t>(got));
  }
}

void Chat::forget() {
  messages_.clear();
  if (!config_.system.empty()) {
    messages_.push_back(Json::object({{"role", "system"}, {"content", config_.system}}));
  }
}

bool Chat::command(const std::string& line) {
  if (line == "/exit" || line == "/quit") return false;
  if (line == "/new") {
    forget();
  } else if (line == "/effort" || line.starts_with("/effort ")) {
    config_.effort = line.size() > 8 ? line.substr(8) : "";
  } else {
    fmt::print("{}", kChatHelp);
  }
  return true;
}

void Chat::print_calls(const ChatAnswer& answer) const {
  for (const ToolCall& call : answer.tool_calls) fmt::print("-> {}({})\n", call.name, call.arguments);
}

Result<ChatAnswer> Chat::stream_answer() {
  JsonObject body;
  body.set("model", model_);
  body.set("messages", messages_);
  body.set("stream", true);
  body.set("stream_options", Json::object({{"include_usage", true}}));
  if (!config_.effort.empty()) body.set("reasoning_effort", config_.effort);
  if (config_.temperature) body.set("temperature", *config_.temperature);
  if (config_.max_tokens) body.set("max_completion_tokens", *config_.max_tokens);
  if (!tools_.is_null()) body.set("tools", tools_);

  // Thinking is for a person to watch; a script gets the answer alone.
  enum class Part { nothing, reasoning, content } part = Part::nothing;
  ChatEvents events({.on_reasoning =
                         [&](std::string_view text) {
                           if (!colours_) return;
                           fmt::print("{}{}", part == Part::reasoning ? "" : dim(), text);
                           part = Part::reasoning;
                           std::fflush(stdout);
                         },
                     .on_content =
                         [&](std::string_view text) {
                           if (part == Part::reasoning) fmt::print("{}\n", plain());
                           fmt::print("{}", text);
                           part = Part::content;
                           std::fflush(stdout);
                         }});
  const auto reply =
      http_request(server_, "/v1/chat/completions", dump_json(std::move(body), JsonStyle::compact()),
                   interrupts_, [&](std::string_view data) { events.feed(data); });
  if (part != Part::nothing) fmt::print("{}\n", part == Part::reasoning ? plain() : "");
  if (!reply.ok()) return reply.error();
  interrupted_ = reply->interrupted;
  if (interrupted_) return events.answer();
  if (reply->status != 200) {
    return make_error(ErrorCode::internal, "", "the server answered {}: {}", reply->status,
                      error_text(reply->body));
  }
  if (!events.answer().error.empty()) {
    return make_error(ErrorCode::internal, "", "the answer broke off: {}", events.answer().error);
  }
  if (events.answer().finish_reason.empty()) {
    return make_error(ErrorCode::internal, "", "the stream ended without a finish_reason");
  }
  return events.answer();
}

int Chat::answer() {
  for (;;) {
    auto answer = stream_answer();
    if (!answer.ok()) {
      // The question stays out of the history, so that it can be asked again.
      while (!messages_.empty() && *messages_.back().find("role") != Json("user")) messages_.pop_back();
      if (!messages_.empty()) messages_.pop_back();
      return report_failure(answer.error());
    }
    messages_.push_back(answer->as_message());
    print_calls(*answer);
    if (interrupted_) {
      fmt::print("{}[stopped]{}\n", dim(), plain());
      // Calls that were cut off have no answer to wait for.
      if (!answer->tool_calls.empty()) messages_.pop_back();
      return 0;
    }
    if (answer->finish_reason == "length")
      fmt::print("{}[the answer reached its length limit]{}\n", dim(), plain());
    if (answer->tool_calls.empty() || answer->finish_reason != "tool_calls") return 0;
    for (const ToolCall& call : answer->tool_calls) {
      const auto result = read_line(fmt::format("result of {}> ", call.name).c_str());
      messages_.push_back(
          Json::object({{"role", "tool"}, {"tool_call_id", call.id}, {"content", result.value_or("")}}));
    }
    if (input_ended_ && typed_.empty()) return 0;
  }
}

int Chat::run() {
  if (auto done = read_tools(); !done.ok()) return report_failure(done.error());
  if (auto done = greet(); !done.ok()) return report_failure(done.error());
  forget();
  int exit_code = 0;
  while (const auto line = read_line("> ")) {
    if (line->find_first_not_of(" \t\r") == std::string::npos) continue;
    if (line->starts_with('/')) {
      if (!command(*line)) break;
      continue;
    }
    messages_.push_back(Json::object({{"role", "user"}, {"content", *line}}));
    exit_code = answer();
    if (!person_ && (exit_code != 0 || interrupted_)) break;  // a script wants to know
  }
  if (person_ && input_ended_) fmt::print("\n");
  return person_ ? 0 : exit_code;
}

}  // namespace

void add_chat_command(CLI::App& app, std::function<int()>& run) {
  CLI::App* command = app.add_subcommand("chat", "Talk to a server from this terminal");
  auto config = std::make_shared<ChatConfig>();
  command->add_option("--url", config->url, "Server")->type_name("URL")->capture_default_str();
  command->add_option("--system", config->system, "System message")->type_name("TEXT");
  command->add_option("--effort", config->effort, "How long to think: none, low, high or max")
      ->type_name("E");
  command->add_option("--temperature", config->temperature, "0 is greedy; default: the server's")
      ->type_name("T");
  command->add_option("--max-tokens", config->max_tokens, "Longest answer")->type_name("N");
  command->add_option("--tools", config->tools_file, "JSON array of OpenAI tools; you type their results")
      ->type_name("FILE")
      ->check(CLI::ExistingFile.description(""));
  command->footer(
      "Examples:\n"
      "  godwit chat                              a conversation; /help inside lists what it understands\n"
      "  godwit chat --url http://gpu7:8000 --effort low\n"
      "  echo 'What is 68 - 5?' | godwit chat     the answer alone");
  command->callback([config, &run] {
    run = [config] {
      auto server = parse_server_url(config->url);
      if (!server.ok()) return report_failure(server.error());
      return Chat(*config, std::move(*server)).run();
    };
  });
}

}  // namespace godwit
