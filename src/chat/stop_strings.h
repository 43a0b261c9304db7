// Stop strings on streamed text (api spec §3.8): text is let through as soon as it can no longer be the
// beginning of a stop string; a match does not depend on how the text was cut into pieces.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace godwit::chat {

class StopStrings {
 public:
  // Empty strings are ignored. include: the matched string itself is let through, too.
  StopStrings(const std::vector<std::string>& strings, bool include);

  // Appends to `out` what may be shown of the text so far. True at the first match: the earliest completion
  // wins, among those the longest string; the text from the match on is dropped.
  bool push(std::string_view text, std::string& out);
  // No more text will follow on: what was held back is text after all.
  void flush(std::string& out);
  const std::optional<std::string>& matched() const { return matched_; }

 private:
  // Knuth-Morris-Pratt: `border[n]` is the longest proper border of the first n bytes.
  struct Pattern {
    std::string text;
    std::vector<size_t> border;
    size_t state = 0;  // bytes matched so far
  };
  std::vector<Pattern> patterns_;
  bool include_;
  std::string held_;  // the longest suffix of the text that begins a stop string
  std::optional<std::string> matched_;
};

}  // namespace godwit::chat
