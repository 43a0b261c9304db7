#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "sample.h"

namespace godwit::tokenizer {
namespace {

using testing::HasSubstr;

std::string replaced(std::string json, std::string_view from, std::string_view to) {
  size_t at = json.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? json : json.replace(at, from.size(), to);
}

Sample base() {
  return Sample{.merges = {{"a", "b"}}, .added = {{"<s>", true}, {"<t>", false}}};
}

struct Fault {
  const char* from;
  const char* to;
  const char* field;   // the message names it
  const char* reason;  // and says this
};

// The sample with one edit each.
const Fault kFaults[] = {
    {R"("version":"1.0",)", R"("version":"1.0","extra":1,)", "extra", "not a known field"},
    {R"("version":"1.0",)", R"("version":"1.0","padding":null,)", "padding", "appears twice"},
    {R"("truncation":null)", R"("truncation":{"max_length":5})", "truncation", "must be null"},
    {R"("normalizer":null)", R"("normalizer":{"type":"NFC"})", "normalizer", "must be null"},
    {R"("post_processor":null)", R"("post_processor":{"type":"TemplateProcessing"})", "post_processor.type",
     "\"TemplateProcessing\" is not supported"},
    {R"("decoder":{"type":"ByteLevel"},)", "", "decoder", "is missing"},
    {R"("decoder":{"type":"ByteLevel"})", R"("decoder":{"type":"Metaspace"})", "decoder.type", "Metaspace"},
    {R"("type":"Sequence")", R"("type":"Whitespace")", "pre_tokenizer.type", "Whitespace"},
    {R"("behavior":"Isolated")", R"("behavior":"Removed")", "pre_tokenizer.pretokenizers[0].behavior",
     "Removed"},
    {R"("invert":false)", R"("invert":true)", "pre_tokenizer.pretokenizers[0].invert", "not supported"},
    {R"("add_prefix_space":false)", R"("add_prefix_space":true)",
     "pre_tokenizer.pretokenizers[1].add_prefix_space", "not supported"},
    {R"("use_regex":false)", R"("use_regex":true)", "pre_tokenizer.pretokenizers[1].use_regex",
     "must be false"},
    {R"({"Regex":"(?i:)", R"({"Regex":"(?i:()", "pre_tokenizer", "does not compile"},
    {R"({"Regex":)", R"({"String":)", "pre_tokenizer.pretokenizers[0].pattern.String", "not a known field"},
    {R"("type":"BPE")", R"("type":"WordPiece")", "model.type", "WordPiece"},
    {R"("dropout":null)", R"("dropout":0.1)", "model.dropout", "a number"},
    {R"("unk_token":null)", R"("unk_token":"<unk>")", "model.unk_token", "a string"},
    {R"("byte_fallback":false)", R"("byte_fallback":true)", "model.byte_fallback", "not supported"},
    {R"("ignore_merges":true)", R"("ignore_merges":"yes")", "model.ignore_merges", "must be true or false"},
    {R"("merges":[["a","b"]])", R"("merges":{})", "model.merges", "must be an array"},
    {R"(["a","b"])", R"(["a","b","c"])", "model.merges[0]", "must be [left, right]"},
    {R"(["a","b"])", R"("a b c")", "model.merges[0]", "must be [left, right]"},
    {R"(["a","b"])", R"("ab")", "model.merges[0]", "must be [left, right]"},
    {R"(["a","b"])", R"(["a",7])", "model.merges[0]", "must be [left, right]"},
    {R"(["a","b"])", R"(["a","zz"])", "model.merges[0]", "\"zz\" is not in model.vocab"},
    {R"(["a","b"])", R"(["b","a"])", "model.merges[0]", "the result \"ba\" is not in model.vocab"},
    {R"("ab":256)", R"("ab":255)", "model.vocab", "taken by another token"},
    {R"("ab":256)", R"("ab":-1)", "model.vocab", "\"ab\" must be an integer"},
    {R"("ab":256)", R"("ab":4194304)", "model.vocab", "within 0..4194303"},
    {R"("ab":256)", R"("ab":1.5)", "model.vocab", "must be an integer"},
    {R"("ab":256)", R"("b":256)", "model.vocab", "\"b\" appears twice"},
    {R"("ab":256)", R"("":256)", "model.vocab", "empty token"},
    {R"("z":122,)", "", "model.vocab", "no token for byte 0x7a"},
    {R"("content":"<t>")", R"("content":"<s>")", "added_tokens[1].content", "appears twice"},
    {R"("content":"<t>")", R"("content":"")", "added_tokens[1].content", "0 bytes"},
    {R"("content":"<t>")", R"("content":5)", "added_tokens[1].content", "must be a string, is a number"},
    {R"("id":258)", R"("id":3)", "added_tokens", "id 3 of \"<t>\" is taken"},
    {R"("id":258)", R"("id":-4)", "added_tokens[1].id", "is -4, must be within"},
    {R"("id":258)", R"("id":257)", "added_tokens", "is taken"},
    {R"("lstrip":false)", R"("lstrip":true)", "added_tokens[0].lstrip", "not supported"},
    {R"("normalized":false)", R"("normalized":true)", "added_tokens[0].normalized", "not supported"},
};

TEST(TokenizerJson, FaultsNameFileAndField) {
  std::string json = base().json();
  ASSERT_TRUE(Tokenizer::from_json(json).ok()) << Tokenizer::from_json(json).error().message;
  for (const Fault& fault : kFaults) {
    auto made = Tokenizer::from_json(replaced(json, fault.from, fault.to), "dir/tokenizer.json");
    ASSERT_FALSE(made.ok()) << fault.to;
    EXPECT_EQ(made.error().code, ErrorCode::data_refused);
    EXPECT_THAT(made.error().message, testing::StartsWith("dir/tokenizer.json: "));
    EXPECT_THAT(made.error().message, HasSubstr(std::string(fault.field) + ": "));
    EXPECT_THAT(made.error().message, HasSubstr(fault.reason));
    EXPECT_EQ(made.error().field, fault.field);
  }
}

TEST(TokenizerJson, NotJsonAtAll) {
  for (std::string_view text : {"", "{", "[]", "null", "{}x", "\xFF\xFE", R"({"model":)"}) {
    auto made = Tokenizer::from_json(text);
    ASSERT_FALSE(made.ok()) << text;
    EXPECT_THAT(made.error().message, HasSubstr("tokenizer.json: "));
  }
  EXPECT_FALSE(Tokenizer::from_json(std::string(5000, '[')).ok());
}

TEST(TokenizerJson, EveryTruncationIsRefused) {
  std::string json = base().json();
  for (size_t size = 0; size < json.size(); size += 7) {
    EXPECT_FALSE(Tokenizer::from_json(json.substr(0, size)).ok()) << size;
  }
}

TEST(TokenizerJson, OptionalPartsMayBeMissing) {
  std::string json = base().json();
  for (std::string_view part : {R"("truncation":null,)", R"("normalizer":null,)", R"("post_processor":null,)",
                                R"("dropout":null,)", R"("ignore_merges":true,)", R"("version":"1.0",)"}) {
    EXPECT_TRUE(Tokenizer::from_json(replaced(json, part, "")).ok()) << part;
  }
}

TEST(TokenizerJson, ByteLevelAloneSplitsByTheGpt2Pattern) {
  std::string json = base().json();
  size_t from = json.find(R"({"type":"Sequence")"), to = json.find(R"(,"post_processor")");
  json.replace(from, to - from, R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true})");
  auto made = Tokenizer::from_json(json);
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ((*made)->encode("ab 12").value(), (std::vector<int32_t>{256, ' ', '1', '2'}));
}

TEST(TokenizerJson, AddedTokenMayRepeatAVocabularyEntry) {
  Sample sample{.extra_tokens = {"<s>"}};
  std::string json = replaced(sample.json(), R"("added_tokens":[)",
                              R"("added_tokens":[{"id":256,"content":"<s>","special":true})");
  auto made = Tokenizer::from_json(json);
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_TRUE((*made)->is_special(256));
  EXPECT_EQ((*made)->encode("a<s>").value(), (std::vector<int32_t>{'a', 256}));
}

TEST(TokenizerJson, EntriesOutsideTheAlphabetAreKeptAsText) {
  std::string json = replaced(base().json(), R"("vocab":{)", R"("vocab":{"<pad me>":300,)");
  auto made = Tokenizer::from_json(json);
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ((*made)->bytes_of(300), "<pad me>");
  EXPECT_FALSE((*made)->has(299));
  EXPECT_EQ((*made)->size(), 301);
}

TEST(TokenizerJson, LoadNamesThePath) {
  auto missing = Tokenizer::load("no/such/tokenizer.json");
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.error().message, HasSubstr("no/such/tokenizer.json: cannot be read"));
  EXPECT_FALSE(Tokenizer::load(std::filesystem::temp_directory_path()).ok());
}

TEST(TokenizerJson, RandomEditsNeverCrash) {
  std::string json = base().json();
  std::mt19937 rng(6);
  int refused = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string edited = json;
    for (unsigned n = 1 + rng() % 3; n > 0; --n) {
      size_t at = rng() % edited.size();
      switch (rng() % 3) {
        case 0:
          edited[at] = static_cast<char>(rng());
          break;
        case 1:
          edited.erase(at, 1 + rng() % 5);
          break;
        default:
          edited.insert(at, 1, "\"{}[],:0a\\"[rng() % 10]);
      }
    }
    auto made = Tokenizer::from_json(edited);
    refused += !made.ok();
    if (!made.ok()) continue;
    EXPECT_TRUE((*made)->encode("ab <s>\n1").ok());
  }
  EXPECT_GT(refused, 2000);
}

}  // namespace
}  // namespace godwit::tokenizer
