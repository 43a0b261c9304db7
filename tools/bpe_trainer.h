// Byte-pair training for tools/train_bpe: words with counts in, a token list out. Deterministic: ties go to
// the pair of older tokens.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace godwit::tools {

// How often each pre-token occurs.
class WordCounts {
 public:
  void add(std::string_view word);
  // Words seen at least `least` times, by descending count, then bytes.
  std::vector<std::pair<std::string, int64_t>> words(int64_t least) const;

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
  };
  std::unordered_map<std::string, int64_t, Hash, std::equal_to<>> counts_;
};

// Tokens as bytes: the 256 single bytes first, then merges in the order they were made, until there are
// `size` tokens or no pair occurs twice.
std::vector<std::string> train_tokens(const std::vector<std::pair<std::string, int64_t>>& words, size_t size);

}  // namespace godwit::tools
