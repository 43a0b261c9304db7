// godwit debug parse|render|tokenize|detokenize: what the output parser, the template and the tokenizer make
// of stdin.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>

#include "chat/normalise.h"
#include "chat/text_front_end.h"
#include "commands.h"
#include "server/chat_prompt.h"

namespace godwit {
namespace {

namespace fs = std::filesystem;

struct DebugFlags {
  std::string tools;  // file
  bool stream = false;
  bool thinking = false;
  bool truncated = false;
  std::string model;          // directory
  std::string chat_template;  // file; empty: the model's
};

// Calls `take` with what stdin delivers, as it arrives; until its end or until take returns false.
template <class Take>
void read_input(Take take) {
  char buffer[4096];
  ssize_t n = 0;
  while ((n = ::read(STDIN_FILENO, buffer, sizeof buffer)) > 0) {
    if (!take(std::string_view(buffer, static_cast<size_t>(n)))) return;
  }
}

std::string whole_input() {
  std::string out;
  read_input([&](std::string_view piece) {
    out += piece;
    return true;
  });
  return out;
}

void print_line(const Json& value) {
  fmt::print("{}\n", dump_json(value));
  std::fflush(stdout);
}

// A file with a list of tools, or with a request that has one.
Result<std::shared_ptr<const chat::ToolSet>> read_tools(const std::string& file) {
  if (file.empty()) return std::shared_ptr<const chat::ToolSet>();
  std::ifstream stream(file, std::ios::binary);
  if (!stream) return make_error(ErrorCode::data_refused, file, "the file cannot be read");
  GODWIT_ASSIGN(Json document, parse_json(std::string(std::istreambuf_iterator<char>(stream), {})));
  const Json* tools = document.is_array() ? &document : document.find("tools");
  GODWIT_ASSIGN(JsonArray list, chat::normalise_tools(tools));
  return std::make_shared<const chat::ToolSet>(list);
}

Json delta_json(const chat::Delta& delta) {
  using Kind = chat::Delta::Kind;
  switch (delta.kind) {
    case Kind::reasoning:
      return Json::object({{"reasoning_content", delta.text}});
    case Kind::content:
      return Json::object({{"content", delta.text}});
    case Kind::promote:
      return Json::object({{"content", delta.text}, {"promoted", true}});
    case Kind::call_begin:
      return Json::object({{"tool_call", delta.call}, {"id", delta.id}, {"name", delta.name}});
    case Kind::call_arguments:
      return Json::object({{"tool_call", delta.call}, {"arguments", delta.text}});
    case Kind::call_end:
      break;
  }
  return Json::object({{"tool_call", delta.call}, {"truncated", delta.truncated}});
}

Json message_json(const chat::Message& message) {
  JsonObject out;
  out.set("role", "assistant");
  out.set("content", message.content.empty() && !message.tool_calls.empty() ? Json() : Json(message.content));
  if (!message.reasoning.empty()) out.set("reasoning_content", message.reasoning);
  JsonArray calls;
  for (const chat::ToolCall& call : message.tool_calls) {
    Json function = Json::object({{"name", call.name}, {"arguments", call.arguments}});
    JsonObject entry;
    entry.set("id", call.id);
    entry.set("type", "function");
    entry.set("function", std::move(function));
    if (call.truncated) entry.set("truncated", true);
    calls.push_back(std::move(entry));
  }
  if (!calls.empty()) out.set("tool_calls", std::move(calls));
  return out;
}

int parse_output(const DebugFlags& flags) {
  auto tools = read_tools(flags.tools);
  if (!tools.ok()) return report_failure(tools.error());
  chat::TextFrontEnd front({.thinking = flags.thinking, .tools = *tools});
  chat::Message message;
  auto settle = [&] {
    for (const chat::Delta& delta : front.parser().take()) {
      if (flags.stream) {
        print_line(delta_json(delta));
      } else {
        chat::apply(message, delta);
      }
    }
  };
  read_input([&](std::string_view piece) {
    bool more = front.push(piece);
    settle();
    return more;
  });
  front.end(flags.truncated ? chat::EndReason::length : chat::EndReason::stop);
  settle();
  Json finish = chat::name_of(front.parser().finish().reason);
  print_line(flags.stream ? Json::object({{"finish_reason", finish}})
                          : Json::object({{"message", message_json(message)}, {"finish_reason", finish}}));
  return 0;
}

Result<std::shared_ptr<const tokenizer::Tokenizer>> load_tokenizer(const DebugFlags& flags) {
  return tokenizer::Tokenizer::load(fs::path(flags.model) / "tokenizer.json");
}

Result<std::string> rendered_prompt(const DebugFlags& flags) {
  server::ServingModel model;
  GODWIT_ASSIGN(model.tokenizer, load_tokenizer(flags));
  model.control_ids = tokenizer::find_control_ids(*model.tokenizer);
  std::optional<fs::path> file;
  if (!flags.chat_template.empty()) file = flags.chat_template;
  GODWIT_ASSIGN(chat::ChatTemplate chat_template, chat::ChatTemplate::load(flags.model, file));
  model.chat_template = std::make_shared<const chat::ChatTemplate>(std::move(chat_template));
  GODWIT_ASSIGN(const Json body, server::parse_body(whole_input()));
  GODWIT_ASSIGN(server::ChatPrompt prompt, server::build_chat_prompt(model, body));
  return model.tokenizer->decode(prompt.ids);
}

Result<std::string> ids_of_input(const DebugFlags& flags) {
  GODWIT_ASSIGN(auto tokenizer, load_tokenizer(flags));
  GODWIT_ASSIGN(std::vector<int32_t> ids, tokenizer->encode(whole_input()));
  return fmt::format("[{}]\n", fmt::join(ids, ", "));
}

Result<std::string> text_of_input(const DebugFlags& flags) {
  GODWIT_ASSIGN(auto tokenizer, load_tokenizer(flags));
  GODWIT_ASSIGN(Json list, parse_json(whole_input()));
  if (!list.is_array())
    return make_error(ErrorCode::invalid_request, "stdin", "must be a JSON list of token ids");
  std::vector<int32_t> ids;
  for (const Json& id : list.as_array()) {
    if (!id.is_integer() || id.as_integer() < 0 || id.as_integer() >= tokenizer->size()) {
      return make_error(ErrorCode::invalid_request, "stdin", "{} is no token id; this model has ids 0 to {}",
                        dump_json(id).substr(0, 80), tokenizer->size() - 1);
    }
    ids.push_back(static_cast<int32_t>(id.as_integer()));
  }
  return tokenizer->decode(ids);
}

int print_result(const Result<std::string>& text) {
  if (!text.ok()) return report_failure(text.error());
  std::fwrite(text->data(), 1, text->size(), stdout);
  return 0;
}

CLI::App* add_model_command(CLI::App& parent, const char* name, const char* about, DebugFlags& flags) {
  CLI::App* command = parent.add_subcommand(name, about);
  command->add_option("--model", flags.model, "Model directory")
      ->type_name("DIR")
      ->required()
      ->check(CLI::ExistingDirectory);
  return command;
}

}  // namespace

void add_debug_command(CLI::App& app, std::function<int()>& run) {
  CLI::App* command =
      app.add_subcommand("debug", "Show what the template, tokenizer and output parser do with stdin");
  command->require_subcommand(1);
  auto flags = std::make_shared<DebugFlags>();

  CLI::App* parse =
      command->add_subcommand("parse", "Model output as text to a message or its deltas, as JSON");
  parse->add_option("--tools", flags->tools, "JSON list of the declared tools, or a request that has one")
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  parse->add_flag("--stream", flags->stream, "Print each delta as a line of JSON as it arrives");
  parse->add_flag("--thinking", flags->thinking, "The prompt ended in <think>, as it does by default");
  parse->add_flag("--truncated", flags->truncated, "The output was cut by max_tokens");
  parse->footer(
      "Example:\n"
      "  echo 'hm</think>It is 4.<|user|>' | godwit debug parse --thinking");
  parse->callback([flags, &run] { run = [flags] { return parse_output(*flags); }; });

  CLI::App* render =
      add_model_command(*command, "render", "The body of a chat request to the prompt text", *flags);
  render->add_option("--chat-template", flags->chat_template, "Template file instead of the model's own")
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  render->callback([flags, &run] { run = [flags] { return print_result(rendered_prompt(*flags)); }; });

  add_model_command(*command, "tokenize", "Text to a JSON list of token ids", *flags)
      ->callback([flags, &run] { run = [flags] { return print_result(ids_of_input(*flags)); }; });
  add_model_command(*command, "detokenize", "A JSON list of token ids to text", *flags)
      ->callback([flags, &run] { run = [flags] { return print_result(text_of_input(*flags)); }; });
}

}  // namespace godwit
