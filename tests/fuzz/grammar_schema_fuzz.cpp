// A JSON Schema and, after a zero byte, bytes that choose tokens: compiling ends within its limits, every
// mask allows something, what it allows is accepted, and a finished text is JSON.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "grammar/matcher.h"

namespace {

using namespace godwit;

// One token a byte, a few longer ones, and the control tokens that calls are made of.
std::shared_ptr<const grammar::TokenIndex> make_index() {
  Json vocabulary{JsonObject()};
  auto add = [&](std::string_view text) {
    vocabulary.as_object().set(text, static_cast<int64_t>(vocabulary.as_object().size()));
  };
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::string name;
    const unsigned c = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173) ? byte : 256;
    static unsigned next = 256;
    const unsigned code_point = c == 256 ? next++ : c;  // the byte-level alphabet
    if (code_point < 0x80) {
      name += static_cast<char>(code_point);
    } else {
      name += static_cast<char>(0xC0 | code_point >> 6);
      name += static_cast<char>(0x80 | (code_point & 63));
    }
    add(name);
  }
  for (const char* text : {"\",", "\":", "{\"", "true", "abc", "]}", "12"}) add(text);
  const auto ends = static_cast<int32_t>(vocabulary.as_object().size());
  const Json file = Json::object(
      {{"model",
        Json::object(
            {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", JsonArray()}, {"ignore_merges", true}})},
       {"added_tokens",
        JsonArray{Json::object({{"id", ends}, {"content", "<|endoftext|>"}, {"special", true}})}},
       {"pre_tokenizer", Json::object({{"type", "ByteLevel"},
                                       {"add_prefix_space", false},
                                       {"trim_offsets", false},
                                       {"use_regex", true}})},
       {"decoder", Json::object({{"type", "ByteLevel"}})}});
  auto tokenizer = tokenizer::Tokenizer::from_json(dump_json(file));
  if (!tokenizer.ok()) std::abort();
  return grammar::TokenIndex::make(*tokenizer, (*tokenizer)->size(), {&ends, 1}).value();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto index = make_index();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t zero = text.find('\0');
  auto schema = parse_json(text.substr(0, zero));
  if (!schema.ok()) return 0;
  grammar::GrammarSpec spec;
  spec.content = grammar::GrammarSpec::Content::json_schema;
  spec.schema = *std::move(schema);
  const auto compiled = grammar::compile(spec, index);
  if (!compiled.ok()) {
    if (compiled.error().code != ErrorCode::invalid_request || compiled.error().message.empty()) std::abort();
    return 0;
  }
  grammar::Matcher matcher(*compiled, false);
  std::vector<uint32_t> mask(index->mask_words());
  std::string out;
  const std::string_view choices = zero == text.npos ? "" : text.substr(zero + 1, 200);
  for (size_t step = 0; step < 400 && !matcher.finished(); ++step) {
    matcher.fill_mask(mask);
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < index->vocab_size(); ++id) {
      if ((mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0) ids.push_back(id);
    }
    if (ids.empty()) std::abort();
    const size_t choice = step < choices.size() ? static_cast<uint8_t>(choices[step]) : ids.size() - 1;
    const int32_t id = ids[choice % ids.size()];
    if (!matcher.accept(id)) std::abort();
    out += index->text_of(id);
    if (step % 16 == 15) {
      matcher.rollback(1);
      if (!matcher.accept(id)) std::abort();
    }
  }
  if (matcher.finished() && !parse_json(out).ok()) std::abort();
  return 0;
}
