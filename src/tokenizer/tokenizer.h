// Tokenizer: a byte-level BPE tokenizer.json (api spec §1), immutable after loading and safe to use from any
// thread.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/encode_pool.h"
#include "tokenizer/pretokenizer.h"
#include "tokenizer/vocabulary.h"

namespace godwit::tokenizer {

// What tokenizer_json.cpp reads from the file.
struct TokenizerParts {
  Vocabulary vocabulary;  // the model's tokens and the added ones
  MergeTable merges;
  std::array<int32_t, 256> byte_ids{};  // the id of each single byte
  bool ignore_merges = false;           // a pre-token that is a token is taken whole, whatever the merges say
  std::unique_ptr<PreTokenizer> pre_tokenizer;
  std::vector<AddedToken> added_tokens;  // ascending id
  AddedTokenMatcher matcher;
};

class Tokenizer {
 public:
  static constexpr size_t kMaxTextBytes = size_t{32} << 20;  // beyond any context; bounds merge memory

  // Errors: data_refused (not readable, not the shape of api spec §1.1, or past a limit); the message names
  // the file and the field.
  static Result<std::shared_ptr<const Tokenizer>> load(const std::filesystem::path& tokenizer_json);
  // `name` stands for the file in messages.
  static Result<std::shared_ptr<const Tokenizer>> from_json(std::string_view json,
                                                            std::string_view name = "tokenizer.json");

  explicit Tokenizer(TokenizerParts parts);

  // One more than the largest id with a token; the model's vocab_size may be larger.
  int32_t size() const { return parts_.vocabulary.size(); }
  bool has(int32_t id) const { return parts_.vocabulary.has(id); }
  // The token's raw bytes, which need not be whole UTF-8; empty for an id without a token.
  std::string_view bytes_of(int32_t id) const { return parts_.vocabulary.bytes_of(id); }
  bool is_added(int32_t id) const { return find_added(id) != nullptr; }
  bool is_special(int32_t id) const {
    const AddedToken* token = find_added(id);
    return token && token->special;
  }
  std::span<const AddedToken> added_tokens() const { return parts_.added_tokens; }
  // The id of the token with exactly these bytes, -1 when there is none.
  int32_t id_of(std::string_view bytes) const;

  // Ids of `text`. Each maximal ill-formed UTF-8 subsequence counts as U+FFFD. `literal` (ascending, disjoint
  // byte ranges of `text`, which then must be well formed): no added token is recognised that touches one of
  // them. Errors: too_large beyond kMaxTextBytes; invalid_request for bad ranges; unprocessable when a
  // pattern that runs through PCRE2 exceeds its match limit.
  Result<std::vector<int32_t>> encode(std::string_view text, const AddedTokens& added = AddedTokens::all(),
                                      std::span<const LiteralRange> literal = {}) const;

  // Text of `ids`; ill-formed bytes become U+FFFD. Equals what a Detokenizer emits for them.
  std::string decode(std::span<const int32_t> ids, bool skip_special_tokens = false) const;

 private:
  const AddedToken* find_added(int32_t id) const;
  Result<void> encode_segment(std::string_view segment, EncodeState& state, std::vector<int32_t>& out) const;
  void encode_piece(std::string_view piece, EncodeState& state, std::vector<int32_t>& out) const;
  void compute_piece(std::string_view piece, EncodeState& state, std::vector<int32_t>& out) const;

  TokenizerParts parts_;
  mutable EncodePool pool_;
};

}  // namespace godwit::tokenizer
