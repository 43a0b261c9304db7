// Added tokens (api spec §1.2, §1.3 rule 1): contents that are found in text before anything else and become
// one id.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace godwit::tokenizer {

struct AddedToken {
  int32_t id = -1;
  std::string content;   // UTF-8
  bool special = false;  // left out by skip_special_tokens
};

// Which added tokens a text may contain; the others are ordinary text (api spec §1.3 rule 1, §2.9).
class AddedTokens {
 public:
  static AddedTokens all() { return AddedTokens(Mode::all); }
  static AddedTokens none() { return AddedTokens(Mode::none); }
  static AddedTokens only(std::span<const int32_t> ids);

  bool allows(int32_t id) const;
  bool allows_none() const { return mode_ == Mode::none; }

 private:
  enum class Mode : uint8_t { all, none, listed };
  explicit AddedTokens(Mode mode) : mode_(mode) {}
  Mode mode_;
  std::vector<int32_t> ids_;  // ascending
};

// Bytes [begin, end) of a text in which no added token is recognised: what a message says stays what it says,
// though it is encoded together with the template around it (design §12).
struct LiteralRange {
  size_t begin = 0;
  size_t end = 0;
};

// Finds every content at once (Aho-Corasick): leftmost match, the longest at equal start.
class AddedTokenMatcher {
 public:
  struct Match {
    size_t begin = 0;
    size_t end = 0;
    int32_t id = -1;  // -1: no match
  };
  static constexpr size_t kMaxContent = 1024;                // bytes
  static constexpr size_t kMaxTableCells = size_t{1} << 24;  // states x byte classes

  AddedTokenMatcher() = default;
  // Contents are distinct and not empty. data_refused when the table would pass kMaxTableCells.
  static Result<AddedTokenMatcher> make(std::span<const AddedToken> tokens);

  // The first match in text[from, end) that `policy` allows and that overlaps no literal range (ascending,
  // disjoint).
  Match find(std::string_view text, size_t from, const AddedTokens& policy,
             std::span<const LiteralRange> literal) const;

 private:
  struct State {
    uint32_t depth = 0;        // bytes of the prefix this state stands for
    uint32_t token = kNone;    // index of the content that is this prefix
    uint32_t shorter = kNone;  // the next state along the suffix links that has a token
  };
  static constexpr uint32_t kNone = UINT32_MAX;

  void consider(size_t end, uint32_t state, const AddedTokens& policy, std::span<const LiteralRange> literal,
                Match& best) const;

  std::array<uint16_t, 256> class_of_{};  // byte -> class; 0: in no content
  std::array<bool, 256> begins_{};        // some content begins with this byte
  uint32_t classes_ = 1;
  std::vector<uint32_t> next_;   // [states, classes_]
  std::vector<State> states_;    // 0 is the root
  std::vector<int32_t> ids_;     // [tokens]
  std::vector<uint32_t> sizes_;  // [tokens], bytes
};

}  // namespace godwit::tokenizer
