// A small tokenizer.json built in memory, so that tests can state exactly what is in it.
#pragma once

#include <fmt/core.h>

#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/pretokenizer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace godwit::tokenizer {

struct Sample {
  std::vector<std::pair<std::string, std::string>> merges;  // bytes; each makes a token
  std::vector<std::string> extra_tokens;                    // bytes; reachable only through ignore_merges
  std::vector<std::pair<std::string, bool>> added;          // content, special
  bool ignore_merges = true;
  bool string_merges = false;
  std::string pattern = std::string(kGlmPattern);

  // Ids: bytes 0..255, then the merges, then extra_tokens, then added.
  std::string json() const {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
    for (const auto& [left, right] : merges) tokens.push_back(left + right);
    tokens.insert(tokens.end(), extra_tokens.begin(), extra_tokens.end());
    std::string vocab, list, added_list;
    for (size_t id = 0; id < tokens.size(); ++id)
      vocab += fmt::format("{}{}:{}", id ? "," : "", written(tokens[id]), id);
    for (const auto& [left, right] : merges) {
      list += list.empty() ? "" : ",";
      if (string_merges) {
        append_json_string(list, encode_byte_level(left) + " " + encode_byte_level(right));
      } else {
        list += fmt::format("[{},{}]", written(left), written(right));
      }
    }
    for (size_t i = 0; i < added.size(); ++i) {
      std::string content;
      append_json_string(content, added[i].first);
      added_list += fmt::format(
          R"({}{{"id":{},"content":{},"single_word":false,"lstrip":false,"rstrip":false,"normalized":false,"special":{}}})",
          i ? "," : "", tokens.size() + i, content, added[i].second);
    }
    std::string regex;
    append_json_string(regex, pattern);
    return fmt::format(
        R"({{"version":"1.0","truncation":null,"padding":null,"added_tokens":[{}],"normalizer":null,)"
        R"("pre_tokenizer":{{"type":"Sequence","pretokenizers":[{{"type":"Split","pattern":{{"Regex":{}}},)"
        R"("behavior":"Isolated","invert":false}},{{"type":"ByteLevel","add_prefix_space":false,)"
        R"("trim_offsets":true,"use_regex":false}}]}},"post_processor":null,"decoder":{{"type":"ByteLevel"}},)"
        R"("model":{{"type":"BPE","dropout":null,"unk_token":null,"continuing_subword_prefix":null,)"
        R"("end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"ignore_merges":{},)"
        R"("vocab":{{{}}},"merges":[{}]}}}})",
        added_list, regex, ignore_merges, vocab, list);
  }

  std::shared_ptr<const Tokenizer> load() const {
    auto made = Tokenizer::from_json(json());
    return made.ok() ? *made : nullptr;
  }

  static std::string written(std::string_view bytes) {
    std::string out;
    append_json_string(out, encode_byte_level(bytes));
    return out;
  }
};

inline std::shared_ptr<const Tokenizer> tiny_tokenizer() {
  static auto made = Tokenizer::load(GODWIT_SOURCE_DIR "/models/tiny-glm5next/tokenizer.json");
  return made.ok() ? *made : nullptr;
}

// Text that visits the corners of the pre-token pattern: joiners, marks, digits, white space, CR/LF,
// contractions.
inline std::string random_text(std::mt19937& rng, size_t parts) {
  static const char* kParts[] = {
      " ", "  ", "\t",     "\n",     "\r\n",   "\r",     "\n\n",   "\u00a0", "\u3000",  "\u2028", "\u0085",
      "a", "Zq", "word",   "'s",     "'T",     "'lL",    "'re",    "'ve",    "'\u017f", "'",      "''",
      "1", "42", "12345",  "\u00bd", "\u0663", "\u2167", ".",      "...",    "=",       "_",      "-",
      "é", "ß",  "я",      "東京",   "한",     "ᾳ",      "\u0301", "\u200d", "\u200b",  "😀",      "🇩🇪",
      "<", "|>", "[MASK]", "<think", "/",      "\u0000", "\u007f", "\u00ad", "𝟘",       "𐐀",      "ǅ"};
  std::string text;
  for (size_t i = 0; i < parts; ++i) {
    if (rng() % 8 == 0) {
      uint32_t c = rng() % 2 ? rng() % 0x3000 : rng() % 0x110000;
      append_utf8(text, c >= 0xD800 && c < 0xE000 ? 0xFFFD : c);
    } else {
      text += kParts[rng() % std::size(kParts)];
    }
  }
  return text;
}

}  // namespace godwit::tokenizer
