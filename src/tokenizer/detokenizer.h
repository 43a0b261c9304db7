// Detokenizer: ids one by one to text that is whole UTF-8 at every moment (api spec §1.4).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tokenizer/tokenizer.h"

namespace godwit::tokenizer {

class Detokenizer {
 public:
  explicit Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special_tokens = false)
      : tokenizer_(std::move(tokenizer)), skip_special_tokens_(skip_special_tokens) {}

  // The text that `id` completes: never half a code point. Bytes that can no longer become a character are
  // one U+FFFD per maximal ill-formed subsequence. Ids without a token and skipped special tokens give
  // nothing.
  std::string push(int32_t id);
  // The end of the ids: an unfinished character becomes one U+FFFD. Afterwards the object is as new.
  std::string flush();
  // Bytes held back, 0..3.
  size_t pending() const { return tail_.size(); }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_tokens_;
  std::string tail_;
};

}  // namespace godwit::tokenizer
