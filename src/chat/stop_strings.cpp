#include "chat/stop_strings.h"

#include <algorithm>

namespace godwit::chat {

StopStrings::StopStrings(const std::vector<std::string>& strings, bool include) : include_(include) {
  for (const std::string& s : strings) {
    if (s.empty()) continue;
    Pattern p{s, std::vector<size_t>(s.size() + 1, 0)};
    for (size_t n = 1, k = 0; n < s.size(); ++n) {
      while (k > 0 && s[n] != s[k]) k = p.border[k];
      if (s[n] == s[k]) ++k;
      p.border[n + 1] = k;
    }
    patterns_.push_back(std::move(p));
  }
}

bool StopStrings::push(std::string_view text, std::string& out) {
  if (patterns_.empty()) {
    out += text;
    return false;
  }
  size_t before = held_.size();
  held_ += text;
  for (size_t at = before; at < held_.size(); ++at) {
    const Pattern* found = nullptr;
    for (Pattern& p : patterns_) {
      char c = held_[at];
      while (p.state > 0 && p.text[p.state] != c) p.state = p.border[p.state];
      if (p.text[p.state] == c) ++p.state;
      if (p.state == p.text.size() && (found == nullptr || p.text.size() > found->text.size())) found = &p;
    }
    if (found == nullptr) continue;
    matched_ = found->text;
    size_t shown = at + 1 - (include_ ? 0 : found->text.size());
    out.append(held_, 0, shown);
    held_.clear();
    return true;
  }
  size_t keep = 0;
  for (const Pattern& p : patterns_) keep = std::max(keep, p.state);
  out.append(held_, 0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return false;
}

void StopStrings::flush(std::string& out) {
  out += held_;
  held_.clear();
  for (Pattern& p : patterns_) p.state = 0;
}

}  // namespace godwit::chat
