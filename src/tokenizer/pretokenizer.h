// Cuts text into pre-tokens: the pieces that byte-level BPE may not merge across (api spec §1.3 rule 2).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace godwit::tokenizer {

// The GLM-4/GLM-5 pattern, matched by hand (glm_splitter.cpp).
extern const std::string_view kGlmPattern;
// What a ByteLevel pre-tokenizer with use_regex splits by.
extern const std::string_view kByteLevelPattern;

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;

  // Appends the ends of the pre-tokens of `segment` that begin at byte `at`, at most kBatch of them, and
  // returns the last one; the pre-tokens cover every byte. `segment` is well-formed UTF-8 of at most 2^32-1
  // bytes and look-ahead ends at its end; `at` < segment.size() is 0 or what the last call returned.
  virtual Result<size_t> split(std::string_view segment, size_t at, std::vector<uint32_t>& ends) const = 0;

  static constexpr size_t kBatch = 2048;
};

std::unique_ptr<PreTokenizer> make_glm_splitter();

// Any pattern, through PCRE2 (its own Unicode version and its \s, which has U+180E, apply). Text between
// matches is a pre-token too ("Isolated"). Errors: data_refused when the pattern does not compile; split()
// fails with unprocessable when a match exceeds PCRE2's match limit.
Result<std::unique_ptr<PreTokenizer>> make_regex_splitter(std::string_view pattern);

// The hand-written splitter when it knows the pattern, else PCRE2.
Result<std::unique_ptr<PreTokenizer>> make_pre_tokenizer(std::string_view pattern);

}  // namespace godwit::tokenizer
