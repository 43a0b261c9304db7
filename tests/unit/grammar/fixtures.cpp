#include "fixtures.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tokenizer/utf8.h"

namespace godwit::grammar::test {

const std::shared_ptr<const tokenizer::Tokenizer>& tiny_tokenizer() {
  static const auto loaded = tokenizer::Tokenizer::load(std::filesystem::path(GODWIT_SOURCE_DIR) /
                                                        "models/tiny-glm5next/tokenizer.json")
                                 .value();
  return loaded;
}

const std::shared_ptr<const TokenIndex>& tiny_index() {
  static const auto index = [] {
    const auto ids = find_control_ids(*tiny_tokenizer());
    const int32_t ends[] = {ids.end_of_text, ids.user};
    return TokenIndex::make(tiny_tokenizer(), tiny_tokenizer()->size() + 16, ends).value();
  }();
  return index;
}

int32_t end_id() {
  return tiny_index()->control().end_of_text;
}

Json json(std::string_view text) {
  auto parsed = parse_json(text);
  EXPECT_TRUE(parsed.ok()) << text;
  return parsed.ok() ? *std::move(parsed) : Json();
}

std::shared_ptr<const Grammar> compiled(const GrammarSpec& spec) {
  auto grammar = compile(spec, tiny_index());
  EXPECT_TRUE(grammar.ok()) << (grammar.ok() ? "" : grammar.error().message);
  return grammar.ok() ? *grammar : nullptr;
}

std::shared_ptr<const Grammar> schema_grammar(std::string_view schema) {
  GrammarSpec spec;
  spec.content = GrammarSpec::Content::json_schema;
  spec.schema = json(schema);
  return compiled(spec);
}

std::string compile_error(std::string_view schema) {
  GrammarSpec spec;
  spec.content = GrammarSpec::Content::json_schema;
  spec.schema = json(schema);
  auto grammar = compile(spec, tiny_index());
  EXPECT_FALSE(grammar.ok()) << schema;
  if (grammar.ok()) return "";
  EXPECT_EQ(grammar.error().code, ErrorCode::invalid_request);
  return grammar.error().message;
}

std::vector<int32_t> tokens_of(std::string_view text, Cut cut, Random& random) {
  const auto& vocabulary = *tiny_tokenizer();
  if (cut == Cut::tokenizer) return vocabulary.encode(text, tokenizer::AddedTokens::none()).value();
  std::vector<int32_t> out;
  while (!text.empty()) {
    std::vector<std::pair<size_t, int32_t>> fits;
    for (size_t length = 1; length <= std::min<size_t>(text.size(), cut == Cut::bytes ? 1 : 12); ++length) {
      const int32_t id = vocabulary.id_of(text.substr(0, length));
      if (id >= 0 && !vocabulary.is_added(id)) fits.emplace_back(length, id);
    }
    const auto& [length, id] = fits[random() % fits.size()];
    out.push_back(id);
    text.remove_prefix(length);
  }
  return out;
}

bool allows(const std::vector<uint32_t>& mask, int32_t id) {
  return (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
}

std::vector<uint32_t> mask_of(Matcher& matcher) {
  std::vector<uint32_t> mask(tiny_index()->mask_words(), 0xdeadbeef);
  matcher.fill_mask(mask);
  return mask;
}

bool takes(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  Random random(static_cast<unsigned>(text.size()));
  bool result[3];
  int i = 0;
  for (Cut cut : {Cut::tokenizer, Cut::bytes, Cut::random}) {
    Matcher matcher(grammar, false);
    bool ok = true;
    for (int32_t id : tokens_of(text, cut, random)) {
      const bool allowed = allows(mask_of(matcher), id);
      ok = matcher.accept(id);
      EXPECT_EQ(ok, allowed) << "mask and accept disagree in " << text;
      if (!ok) break;
    }
    ok = ok && matcher.is_complete();
    EXPECT_EQ(ok && allows(mask_of(matcher), end_id()), ok) << text;
    result[i++] = ok;
  }
  EXPECT_TRUE(result[0] == result[1] && result[0] == result[2])
      << "the answer depends on the tokens of " << text;
  return result[0];
}

std::string draw(Matcher& matcher, Random& random, size_t steps) {
  std::string text;
  for (size_t step = 0; step < steps; ++step) {
    const auto mask = mask_of(matcher);
    std::vector<int32_t> ids;
    std::vector<int32_t> closing;  // preferred half of the time, or texts would rarely end
    for (int32_t id = 0; id < tiny_index()->vocab_size(); ++id) {
      if (!allows(mask, id)) continue;
      ids.push_back(id);
      if (tiny_index()->text_of(id).find_first_of("\"]}") != std::string_view::npos) closing.push_back(id);
    }
    EXPECT_FALSE(ids.empty()) << "nothing is allowed after " << text;
    if (ids.empty()) return "";
    EXPECT_EQ(allows(mask, end_id()), matcher.is_complete());
    if (matcher.is_complete() && random() % 2 == 0) {
      EXPECT_TRUE(matcher.accept(end_id()));
      EXPECT_TRUE(matcher.finished());
      return text;
    }
    const auto& from = !closing.empty() && random() % 2 == 0 ? closing : ids;
    const int32_t id = from[random() % from.size()];
    EXPECT_TRUE(matcher.accept(id));
    if (matcher.finished()) return text;
    text += tiny_tokenizer()->bytes_of(id);
  }
  return "";
}

}  // namespace godwit::grammar::test
