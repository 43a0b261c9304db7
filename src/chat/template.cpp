#include "chat/template.h"

#include <fstream>
#include <utility>

namespace godwit::chat {
namespace {

namespace fs = std::filesystem;

constexpr uintmax_t kMaxConfigBytes = 64 << 20;
constexpr std::string_view kSpecialTokens[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                               "pad_token", "cls_token", "mask_token"};

Result<std::string> read_file(const fs::path& path, uintmax_t limit) {
  std::error_code error;
  const uintmax_t size = fs::file_size(path, error);
  if (error)
    return make_error(ErrorCode::data_refused, path.filename(), "cannot read {}: {}", path.string(),
                      error.message());
  if (size > limit) {
    return make_error(ErrorCode::data_refused, path.filename(), "{} is {} bytes, the limit is {}",
                      path.string(), size, limit);
  }
  std::string text(size, '\0');
  std::ifstream in(path, std::ios::binary);
  if (!in.read(text.data(), static_cast<std::streamsize>(size))) {
    return make_error(ErrorCode::data_refused, path.filename(), "cannot read {}", path.string());
  }
  return text;
}

// The special tokens that transformers puts into the template's context: a string each, or an added-token
// object.
JsonObject special_tokens_of(const Json& tokenizer_config) {
  JsonObject out;
  for (const std::string_view name : kSpecialTokens) {
    const Json* token = tokenizer_config.find(name);
    if (token != nullptr && token->is_object()) token = token->find("content");
    if (token != nullptr && token->is_string()) out.set(name, *token);
  }
  return out;
}

// The field chat_template: text, or [{"name": "default", "template": text}, …].
const std::string* template_field(const Json& tokenizer_config) {
  const Json* field = tokenizer_config.find("chat_template");
  if (field == nullptr) return nullptr;
  if (field->is_string()) return &field->as_string();
  if (!field->is_array()) return nullptr;
  for (const Json& entry : field->as_array()) {
    const Json* name = entry.find("name");
    const Json* text = entry.find("template");
    if (name != nullptr && name->is_string() && name->as_string() == "default" && text != nullptr &&
        text->is_string()) {
      return &text->as_string();
    }
  }
  return nullptr;
}

}  // namespace

std::string Rendered::text() const {
  size_t size = 0;
  for (const Segment& segment : segments) size += segment.text.size();
  std::string out;
  out.reserve(size);
  for (const Segment& segment : segments) out += segment.text;
  return out;
}

std::vector<tokenizer::LiteralRange> Rendered::literal_ranges() const {
  std::vector<tokenizer::LiteralRange> out;
  size_t at = 0;
  for (const Segment& segment : segments) {
    if (!segment.from_template) out.push_back({at, at + segment.text.size()});
    at += segment.text.size();
  }
  return out;
}

ChatTemplate::ChatTemplate(std::string source, jinja::Template parsed, JsonObject special_tokens)
    : source_(std::move(source)), template_(std::move(parsed)), special_tokens_(std::move(special_tokens)) {}

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, std::string name, JsonObject special_tokens,
                                         const jinja::Limits& limits) {
  GODWIT_ASSIGN(auto parsed, jinja::Template::parse(source, std::move(name), limits));
  return ChatTemplate(std::string(source), std::move(parsed), std::move(special_tokens));
}

Result<ChatTemplate> ChatTemplate::load(const fs::path& model_dir,
                                        const std::optional<fs::path>& override_file,
                                        const jinja::Limits& limits) {
  Json config;
  const fs::path config_file = model_dir / "tokenizer_config.json";
  std::error_code error;
  if (fs::exists(config_file, error)) {
    GODWIT_ASSIGN(const std::string text, read_file(config_file, kMaxConfigBytes));
    auto parsed = parse_json(text);
    if (!parsed.ok()) {
      return make_error(ErrorCode::data_refused, "tokenizer_config.json", "{}: {}", config_file.string(),
                        parsed.error().message);
    }
    config = std::move(parsed).value();
  }
  const fs::path file = override_file.value_or(model_dir / "chat_template.jinja");
  if (override_file || fs::exists(file, error)) {
    GODWIT_ASSIGN(const std::string source, read_file(file, limits.source_bytes));
    return parse(source, file.filename().string(), special_tokens_of(config), limits);
  }
  if (const std::string* source = template_field(config)) {
    return parse(*source, "tokenizer_config.json: chat_template", special_tokens_of(config), limits);
  }
  return make_error(
      ErrorCode::data_refused, "chat_template",
      "{} has neither chat_template.jinja nor a chat_template in tokenizer_config.json; name a file with "
      "--chat-template",
      model_dir.string());
}

Result<Rendered> ChatTemplate::render(const TemplateInput& input) const {
  const Json none, add_generation_prompt(input.add_generation_prompt);
  std::vector<jinja::Variable> variables;
  for (const auto& [name, value] : special_tokens_) variables.emplace_back(name, &value);
  variables.emplace_back("documents", &none);
  if (input.kwargs != nullptr) {
    for (const auto& [name, value] : *input.kwargs) variables.emplace_back(name, &value);
  }
  // Last, so that chat_template_kwargs cannot replace them.
  variables.emplace_back("messages", &input.messages);
  variables.emplace_back("tools", input.tools == nullptr ? &none : input.tools);
  variables.emplace_back("add_generation_prompt", &add_generation_prompt);
  GODWIT_ASSIGN(auto segments, template_.render(variables, input.now));
  return Rendered{std::move(segments)};
}

}  // namespace godwit::chat
