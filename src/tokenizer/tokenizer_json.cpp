// Reads tokenizer.json (api spec §1.1). Everything that would change the ids and is not implemented is
// refused. simdjson rather than base/json.h: a 150K vocabulary is a million values in 20 MB, most of them
// read once.
#include <simdjson.h>

#include <algorithm>
#include <fstream>
#include <unordered_set>

#include "tokenizer/byte_level.h"
#include "tokenizer/json_fields.h"
#include "tokenizer/tokenizer.h"

namespace godwit::tokenizer {
namespace {

constexpr size_t kMaxFileBytes = size_t{256} << 20;
constexpr size_t kMaxMerges = size_t{1} << 23;
constexpr size_t kMaxAddedTokens = 1 << 16;
constexpr size_t kMaxPattern = 64 << 10;

Result<void> require_type(const JsonField& field, std::string_view type) {
  GODWIT_ASSIGN(JsonField name, field.member("type"));
  GODWIT_ASSIGN(std::string_view found, name.string());
  if (found != type) return name.refuse("\"{}\" is not supported; it must be \"{}\"", clip(found), type);
  return {};
}

// True when the pre-tokenizer also splits by kByteLevelPattern.
Result<bool> read_byte_level(const JsonField& field) {
  GODWIT_TRY(field.only({"type", "add_prefix_space", "trim_offsets", "use_regex"}));
  GODWIT_TRY(require_type(field, "ByteLevel"));
  GODWIT_TRY(field.must_be_false("add_prefix_space"));
  GODWIT_ASSIGN(auto use_regex, field.optional("use_regex"));
  if (!use_regex) return true;  // the field's default in the Hugging Face format
  return use_regex->boolean();
}

Result<std::string_view> read_split(const JsonField& field) {
  GODWIT_TRY(field.only({"type", "pattern", "behavior", "invert"}));
  GODWIT_TRY(require_type(field, "Split"));
  GODWIT_ASSIGN(JsonField behavior, field.member("behavior"));
  GODWIT_ASSIGN(std::string_view how, behavior.string());
  if (how != "Isolated")
    return behavior.refuse("\"{}\" is not supported; it must be \"Isolated\"", clip(how));
  GODWIT_TRY(field.must_be_false("invert"));
  GODWIT_ASSIGN(JsonField pattern, field.member("pattern"));
  GODWIT_TRY(pattern.only({"Regex"}));
  GODWIT_ASSIGN(JsonField regex, pattern.member("Regex"));
  GODWIT_ASSIGN(std::string_view text, regex.string());
  if (text.size() > kMaxPattern)
    return regex.refuse("is {} bytes, the limit is {}", text.size(), kMaxPattern);
  return text;
}

// The one pattern the text is split by.
Result<std::string_view> read_pattern(const JsonField& field) {
  GODWIT_ASSIGN(JsonField type, field.member("type"));
  GODWIT_ASSIGN(std::string_view name, type.string());
  if (name == "ByteLevel") {
    GODWIT_ASSIGN(bool use_regex, read_byte_level(field));
    if (!use_regex)
      return field.refuse("a ByteLevel without a regex and without a Split before it is not supported");
    return kByteLevelPattern;
  }
  if (name != "Sequence")
    return type.refuse("\"{}\" is not supported; it must be \"Sequence\" or \"ByteLevel\"", clip(name));
  GODWIT_TRY(field.only({"type", "pretokenizers"}));
  GODWIT_ASSIGN(JsonField list, field.member("pretokenizers"));
  GODWIT_ASSIGN(auto steps, list.array());
  if (steps.size() != 2) return list.refuse("has {} steps; it must be a Split and a ByteLevel", steps.size());
  GODWIT_ASSIGN(std::string_view pattern, read_split(list.item(0, steps.at(0).value())));
  JsonField byte_level = list.item(1, steps.at(1).value());
  GODWIT_ASSIGN(bool use_regex, read_byte_level(byte_level));
  if (use_regex) return byte_level.child("use_regex", byte_level.value).refuse("must be false after a Split");
  return pattern;
}

Result<std::unique_ptr<PreTokenizer>> read_pre_tokenizer(const JsonField& root) {
  GODWIT_ASSIGN(JsonField field, root.member("pre_tokenizer"));
  GODWIT_ASSIGN(std::string_view pattern, read_pattern(field));
  auto made = make_pre_tokenizer(pattern);
  if (!made.ok()) return field.refuse("{}", made.error().message);
  return made;
}

Result<std::vector<AddedToken>> read_added_tokens(const JsonField& root) {
  std::vector<AddedToken> tokens;
  GODWIT_ASSIGN(auto list, root.optional("added_tokens"));
  if (!list) return tokens;
  GODWIT_ASSIGN(auto items, list->array());
  std::unordered_set<std::string_view> contents;
  for (auto element : items) {
    JsonField field = list->item(tokens.size(), element);
    if (tokens.size() == kMaxAddedTokens)
      return field.refuse("is past the limit of {} tokens", kMaxAddedTokens);
    GODWIT_TRY(field.only({"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}));
    GODWIT_ASSIGN(JsonField id, field.member("id"));
    GODWIT_ASSIGN(int64_t number, id.integer(0, Vocabulary::kMaxIds - 1));
    GODWIT_ASSIGN(JsonField content, field.member("content"));
    GODWIT_ASSIGN(std::string_view text, content.string());
    if (text.empty() || text.size() > AddedTokenMatcher::kMaxContent)
      return content.refuse("is {} bytes, must be 1..{}", text.size(), AddedTokenMatcher::kMaxContent);
    if (!contents.insert(text).second) return content.refuse("\"{}\" appears twice", clip(text));
    for (std::string_view key : {"single_word", "lstrip", "rstrip", "normalized"}) {
      GODWIT_TRY(field.must_be_false(key));
    }
    GODWIT_ASSIGN(bool special, field.flag("special"));
    tokens.push_back({static_cast<int32_t>(number), std::string(text), special});
  }
  std::sort(tokens.begin(), tokens.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  return tokens;
}

// The bytes a vocabulary entry stands for. A few vocabularies list control tokens in plain text among their
// byte-level ones; those have their own UTF-8 as bytes and are never merged to.
std::string token_bytes(std::string_view written, bool& byte_level) {
  std::string bytes;
  byte_level = decode_byte_level(written, bytes);
  return byte_level ? bytes : std::string(written);
}

Result<Vocabulary> read_vocabulary(const JsonField& model, const JsonField& root,
                                   const std::vector<AddedToken>& added) {
  GODWIT_ASSIGN(JsonField field, model.member("vocab"));
  GODWIT_ASSIGN(auto entries, field.object());
  int64_t last = added.empty() ? -1 : added.back().id;
  size_t bytes = 0;
  for (const AddedToken& token : added) bytes += token.content.size();
  for (auto [token, element] : entries) {
    int64_t id;
    if (element.get(id) || id < 0 || id >= Vocabulary::kMaxIds)
      return field.refuse("id of token \"{}\" must be an integer within 0..{}", clip(token),
                          Vocabulary::kMaxIds - 1);
    last = std::max(last, id);
    bytes += token.size();
  }
  Vocabulary vocabulary(static_cast<int32_t>(last + 1), bytes);
  for (auto [token, element] : entries) {
    auto id = static_cast<int32_t>(element.get_int64().value());
    if (token.empty()) return field.refuse("id {} is an empty token", id);
    if (vocabulary.has(id))
      return field.refuse("id {} of token \"{}\" is taken by another token", id, clip(token));
    bool byte_level;
    std::string raw = token_bytes(token, byte_level);
    bool fresh = byte_level ? vocabulary.add(id, raw) : vocabulary.add_unlisted(id, raw);
    if (!fresh) return field.refuse("token \"{}\" appears twice", clip(token));
  }
  for (const AddedToken& token : added) {
    if (vocabulary.add_unlisted(token.id, token.content) || vocabulary.bytes_of(token.id) == token.content)
      continue;
    return root.child("added_tokens", root.value)
        .refuse("id {} of \"{}\" is taken by another token", token.id, clip(token.content));
  }
  return vocabulary;
}

Result<std::array<int32_t, 256>> find_bytes(const JsonField& model, const Vocabulary& vocabulary) {
  std::array<int32_t, 256> ids;
  for (unsigned byte = 0; byte < 256; ++byte) {
    char c = static_cast<char>(byte);
    ids[byte] = vocabulary.find({&c, 1});
    if (ids[byte] < 0)
      return model.child("vocab", model.value)
          .refuse("has no token for byte {:#04x}; a byte-level vocabulary needs all 256", byte);
  }
  return ids;
}

// The two sides of a merge: ["left", "right"], or "left right" in older files.
Result<std::pair<std::string_view, std::string_view>> read_pair(const JsonField& list, size_t index,
                                                                simdjson::dom::element element) {
  auto bad = [&] { return list.item(index, element).refuse("must be [left, right] or \"left right\""); };
  simdjson::dom::array sides;
  if (!element.get(sides)) {
    std::string_view left, right;
    if (sides.size() != 2 || sides.at(0).get(left) || sides.at(1).get(right)) return bad();
    return std::pair(left, right);
  }
  std::string_view text;
  if (element.get(text)) return bad();
  size_t space = text.find(' ');
  if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) return bad();
  return std::pair(text.substr(0, space), text.substr(space + 1));
}

Result<MergeTable> read_merges(const JsonField& model, const Vocabulary& vocabulary) {
  GODWIT_ASSIGN(JsonField list, model.member("merges"));
  GODWIT_ASSIGN(auto merges, list.array());
  size_t count = 0;
  for (auto merge : merges) (void)merge, ++count;  // array::size() saturates
  if (count > kMaxMerges) return list.refuse("has {} merges, the limit is {}", count, kMaxMerges);
  MergeTable table(count);
  uint32_t rank = 0;
  std::string bytes;
  for (auto element : merges) {
    GODWIT_ASSIGN(auto pair, read_pair(list, rank, element));
    int32_t ids[2];
    bytes.clear();
    for (int side = 0; side < 2; ++side) {
      std::string_view written = side == 0 ? pair.first : pair.second;
      size_t before = bytes.size();
      bool known = decode_byte_level(written, bytes);
      ids[side] = known ? vocabulary.find(std::string_view(bytes).substr(before)) : -1;
      if (ids[side] < 0)
        return list.item(rank, element).refuse("\"{}\" is not in model.vocab", clip(written));
    }
    int32_t result = vocabulary.find(bytes);
    if (result < 0)
      return list.item(rank, element)
          .refuse("the result \"{}\" is not in model.vocab", clip(encode_byte_level(bytes)));
    table.add(ids[0], ids[1], {rank++, result});
  }
  return table;
}

Result<void> check_model(const JsonField& model) {
  GODWIT_TRY(model.only({"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                         "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"}));
  GODWIT_TRY(require_type(model, "BPE"));
  for (std::string_view key : {"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix"}) {
    GODWIT_TRY(model.must_be_null(key));
  }
  GODWIT_TRY(model.must_be_false("fuse_unk"));
  return model.must_be_false("byte_fallback");
}

// Sections around the model: those that would change ids or text must be absent, ByteLevel ones change
// neither.
Result<void> check_sections(const JsonField& root) {
  GODWIT_TRY(root.only({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                        "post_processor", "decoder", "model"}));
  for (std::string_view key : {"truncation", "padding", "normalizer"}) {
    GODWIT_TRY(root.must_be_null(key));
  }
  GODWIT_ASSIGN(auto post_processor, root.optional("post_processor"));
  if (post_processor) GODWIT_TRY(require_type(*post_processor, "ByteLevel"));
  GODWIT_ASSIGN(JsonField decoder, root.member("decoder"));
  return require_type(decoder, "ByteLevel");
}

Result<TokenizerParts> read_parts(const JsonField& root) {
  GODWIT_TRY(check_sections(root));
  GODWIT_ASSIGN(JsonField model, root.member("model"));
  GODWIT_TRY(check_model(model));
  GODWIT_ASSIGN(bool ignore_merges, model.flag("ignore_merges"));
  GODWIT_ASSIGN(auto pre_tokenizer, read_pre_tokenizer(root));
  GODWIT_ASSIGN(auto added, read_added_tokens(root));
  GODWIT_ASSIGN(Vocabulary vocabulary, read_vocabulary(model, root, added));
  GODWIT_ASSIGN(auto byte_ids, find_bytes(model, vocabulary));
  GODWIT_ASSIGN(MergeTable merges, read_merges(model, vocabulary));
  auto matcher = AddedTokenMatcher::make(added);
  if (!matcher.ok()) return root.child("added_tokens", root.value).refuse("{}", matcher.error().message);
  return TokenizerParts{std::move(vocabulary),    std::move(merges), byte_ids,           ignore_merges,
                        std::move(pre_tokenizer), std::move(added),  std::move(*matcher)};
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_json(std::string_view json, std::string_view name) {
  if (json.size() > kMaxFileBytes)
    return make_error(ErrorCode::data_refused, "", "{}: {} bytes, the limit is {}", name, json.size(),
                      kMaxFileBytes);
  simdjson::dom::parser parser;
  simdjson::dom::element document;
  if (auto error = parser.parse(json.data(), json.size()).get(document))
    return make_error(ErrorCode::data_refused, "", "{}: not valid JSON: {}", name,
                      simdjson::error_message(error));
  JsonField root{name, "", document};
  if (!document.is_object())
    return make_error(ErrorCode::data_refused, "", "{}: must be a JSON object", name);
  GODWIT_ASSIGN(TokenizerParts parts, read_parts(root));
  return std::shared_ptr<const Tokenizer>(std::make_shared<Tokenizer>(std::move(parts)));
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::load(const std::filesystem::path& path) {
  std::string name = path.string();
  std::error_code failure;
  auto size = std::filesystem::file_size(path, failure);
  if (failure)
    return make_error(ErrorCode::data_refused, "", "{}: cannot be read: {}", name, failure.message());
  if (size > kMaxFileBytes)
    return make_error(ErrorCode::data_refused, "", "{}: {} bytes, the limit is {}", name, size,
                      kMaxFileBytes);
  std::string text(size, '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(text.data(), static_cast<std::streamsize>(size)))
    return make_error(ErrorCode::data_refused, "", "{}: cannot be read", name);
  return from_json(text, name);
}

}  // namespace godwit::tokenizer
