#include "tokenizer/added_tokens.h"

#include <algorithm>

namespace godwit::tokenizer {

AddedTokens AddedTokens::only(std::span<const int32_t> ids) {
  AddedTokens policy(Mode::listed);
  policy.ids_.assign(ids.begin(), ids.end());
  std::sort(policy.ids_.begin(), policy.ids_.end());
  return policy;
}

bool AddedTokens::allows(int32_t id) const {
  if (mode_ != Mode::listed) return mode_ == Mode::all;
  return std::binary_search(ids_.begin(), ids_.end(), id);
}

Result<AddedTokenMatcher> AddedTokenMatcher::make(std::span<const AddedToken> tokens) {
  AddedTokenMatcher m;
  size_t total = 1;
  for (const AddedToken& token : tokens) {
    total += token.content.size();
    for (unsigned char c : token.content) {
      if (m.class_of_[c] == 0) m.class_of_[c] = static_cast<uint16_t>(m.classes_++);
    }
  }
  if (total > kMaxTableCells / m.classes_)
    return make_error(ErrorCode::data_refused, "added_tokens",
                      "{} bytes of content are too many; the limit is {}", total - 1,
                      kMaxTableCells / m.classes_);
  auto new_state = [&](uint32_t depth) {
    m.states_.push_back({depth, kNone, kNone});
    m.next_.resize(m.next_.size() + m.classes_, 0);
    return static_cast<uint32_t>(m.states_.size() - 1);
  };
  new_state(0);
  for (const AddedToken& token : tokens) {
    uint32_t state = 0;
    for (unsigned char c : token.content) {
      size_t cell = size_t{state} * m.classes_ + m.class_of_[c];
      if (m.next_[cell] == 0) {
        uint32_t made = new_state(m.states_[state].depth + 1);
        m.next_[cell] = made;
      }
      state = m.next_[cell];
    }
    m.begins_[static_cast<unsigned char>(token.content[0])] = true;
    m.states_[state].token = static_cast<uint32_t>(m.ids_.size());
    m.ids_.push_back(token.id);
    m.sizes_.push_back(static_cast<uint32_t>(token.content.size()));
  }
  // Breadth first, so a state's suffix link is complete before its children copy the transitions they lack
  // from it.
  std::vector<uint32_t> suffix(m.states_.size(), 0);
  std::vector<uint32_t> order{0};
  for (size_t i = 0; i < order.size(); ++i) {
    uint32_t state = order[i];
    for (uint32_t k = 1; k < m.classes_; ++k) {
      uint32_t& next = m.next_[size_t{state} * m.classes_ + k];
      uint32_t fallback = state == 0 ? 0 : m.next_[size_t{suffix[state]} * m.classes_ + k];
      if (next == 0) {
        next = fallback;
        continue;
      }
      suffix[next] = fallback;
      m.states_[next].shorter = m.states_[fallback].token != kNone ? fallback : m.states_[fallback].shorter;
      order.push_back(next);
    }
  }
  return m;
}

void AddedTokenMatcher::consider(size_t end, uint32_t state, const AddedTokens& policy,
                                 std::span<const LiteralRange> literal, Match& best) const {
  for (uint32_t s = states_[state].token != kNone ? state : states_[state].shorter; s != kNone;
       s = states_[s].shorter) {
    uint32_t token = states_[s].token;
    size_t begin = end - sizes_[token];
    if (best.id >= 0 && begin > best.begin) return;
    if (!policy.allows(ids_[token])) continue;
    auto range = std::partition_point(literal.begin(), literal.end(),
                                      [&](const LiteralRange& r) { return r.end <= begin; });
    if (range != literal.end() && range->begin < end) continue;
    best = {begin, end, ids_[token]};
    return;
  }
}

AddedTokenMatcher::Match AddedTokenMatcher::find(std::string_view text, size_t from,
                                                 const AddedTokens& policy,
                                                 std::span<const LiteralRange> literal) const {
  Match best;
  if (states_.size() < 2 || policy.allows_none()) return best;
  uint32_t state = 0;
  for (size_t i = from; i < text.size(); ++i) {
    if (state == 0) {  // most bytes begin no content: skip them without the chain of dependent loads
      while (!begins_[static_cast<unsigned char>(text[i])]) {
        if (++i == text.size()) return best;
      }
    }
    state = next_[size_t{state} * classes_ + class_of_[static_cast<unsigned char>(text[i])]];
    // Every match still possible begins at or after this state's own beginning.
    if (best.id >= 0 && i + 1 - states_[state].depth > best.begin) return best;
    consider(i + 1, state, policy, literal, best);
  }
  return best;
}

}  // namespace godwit::tokenizer
