#include "tokenizer/detokenizer.h"

#include "tokenizer/utf8.h"

namespace godwit::tokenizer {

std::string Detokenizer::push(int32_t id) {
  if (skip_special_tokens_ && tokenizer_->is_special(id)) return {};
  std::string_view bytes = tokenizer_->bytes_of(id);
  if (tail_.empty() && is_utf8(bytes)) return std::string(bytes);
  tail_.append(bytes);
  std::string out;
  std::string_view rest = tail_;
  while (!rest.empty()) {
    Utf8Step step = next_utf8(rest);
    if (step.kind == Utf8Step::Kind::incomplete) break;
    out.append(step.kind == Utf8Step::Kind::complete ? rest.substr(0, step.length) : kReplacement);
    rest.remove_prefix(step.length);
  }
  tail_.erase(0, tail_.size() - rest.size());
  return out;
}

std::string Detokenizer::flush() {
  if (tail_.empty()) return {};
  tail_.clear();
  return std::string(kReplacement);
}

}  // namespace godwit::tokenizer
