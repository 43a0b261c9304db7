#include "chat/text_front_end.h"

#include <algorithm>
#include <array>

#include "tokenizer/utf8.h"

namespace godwit::chat {
namespace {

constexpr std::array<std::string_view, 3> kTurnEnds = {"<|user|>", "<|observation|>", "<|endoftext|>"};

}  // namespace

bool TextFrontEnd::push(std::string_view bytes) {
  held_ += bytes;
  std::string input = std::move(held_);
  held_.clear();
  std::string_view rest = input;
  while (!rest.empty() && !ended_ && !parser_.stopped()) {
    size_t plain = std::min(rest.find('<'), rest.size());
    text(rest.substr(0, plain));
    rest.remove_prefix(plain);
    if (rest.empty()) break;

    bool partial = false;
    size_t length = 0;  // of the literal found
    for (size_t i = 0; i < kControlText.size() && length == 0; ++i) {
      partial = partial || kControlText[i].starts_with(rest);
      if (!rest.starts_with(kControlText[i])) continue;
      length = kControlText[i].size();
      flush_text();
      parser_.control(static_cast<Control>(i));
    }
    for (std::string_view literal : kTurnEnds) {
      partial = partial || literal.starts_with(rest);
      ended_ = ended_ || rest.starts_with(literal);
    }
    if (length == 0 && partial && !ended_) {
      held_ = rest;
      return true;
    }
    if (length == 0 && !ended_) {
      text("<");
      length = 1;
    }
    rest.remove_prefix(length);
  }
  return !ended_ && !parser_.stopped();
}

void TextFrontEnd::end(EndReason reason) {
  text(held_);
  held_.clear();
  flush_text();
  parser_.end(ended_ ? EndReason::stop : reason);
}

// Passes on whole characters.
void TextFrontEnd::text(std::string_view bytes) {
  if (bytes.empty()) return;
  tail_ += bytes;
  size_t whole = 0;
  while (whole < tail_.size()) {
    tokenizer::Utf8Step step = tokenizer::next_utf8(std::string_view(tail_).substr(whole));
    if (step.kind == tokenizer::Utf8Step::Kind::incomplete) break;
    whole += step.length;
  }
  parser_.text(tokenizer::replace_malformed(std::string_view(tail_).substr(0, whole)));
  tail_.erase(0, whole);
}

void TextFrontEnd::flush_text() {
  parser_.text(tokenizer::replace_malformed(tail_));
  tail_.clear();
}

}  // namespace godwit::chat
