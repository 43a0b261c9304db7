#include "grammar/token_index.h"

#include <algorithm>
#include <array>

#include "tokenizer/utf8.h"

namespace godwit::grammar {
namespace {

constexpr size_t kMaxTokenBytes = 4096;

}  // namespace

Result<std::shared_ptr<const TokenIndex>> TokenIndex::make(
    std::shared_ptr<const tokenizer::Tokenizer> tokenizer, int32_t vocab_size,
    std::span<const int32_t> end_ids) {
  if (vocab_size < tokenizer->size())
    return make_error(ErrorCode::data_refused, "vocab_size", "the model has {} ids, its tokenizer {}",
                      vocab_size, tokenizer->size());
  std::shared_ptr<TokenIndex> index(new TokenIndex);
  index->tokenizer_ = std::move(tokenizer);
  index->vocab_size_ = vocab_size;
  index->control_ = find_control_ids(*index->tokenizer_);
  for (int32_t id : end_ids) {
    if (id < 0 || id >= vocab_size)
      return make_error(ErrorCode::data_refused, "eos_token_id", "id {} is outside the vocabulary of {}", id,
                        vocab_size);
    index->end_ids_.push_back(id);
  }
  std::sort(index->end_ids_.begin(), index->end_ids_.end());
  index->free_mask_.assign(index->mask_words(), 0);
  index->text_mask_.assign(index->mask_words(), 0);
  for (int32_t id = 0; id < index->tokenizer_->size(); ++id) {
    if (!index->tokenizer_->has(id) || index->is_end(id)) continue;
    index->free_mask_[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
    const size_t bytes = index->text_of(id).size();
    if (bytes == 0 || bytes > kMaxTokenBytes) continue;
    index->text_mask_[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
    index->order_.push_back(id);
    index->longest_ = std::max(index->longest_, static_cast<uint32_t>(bytes));
  }
  index->build_nodes();
  index->build_subtrees();
  return std::shared_ptr<const TokenIndex>(std::move(index));
}

bool TokenIndex::is_end(int32_t id) const {
  return std::binary_search(end_ids_.begin(), end_ids_.end(), id);
}

std::string_view TokenIndex::text_of(int32_t id) const {
  return tokenizer_->is_added(id) || is_end(id) ? std::string_view() : tokenizer_->bytes_of(id);
}

void TokenIndex::build_nodes() {
  std::sort(order_.begin(), order_.end(), [this](int32_t a, int32_t b) {
    const auto x = text_of(a);
    const auto y = text_of(b);
    return x != y ? x < y : a < b;
  });
  Node root;
  root.end = static_cast<uint32_t>(order_.size());
  nodes_.push_back(root);
  std::vector<uint32_t> open{0};  // depth first, so that what is walked together lies together
  while (!open.empty()) {
    const uint32_t at = open.back();
    open.pop_back();
    const size_t depth = nodes_[at].depth;
    uint32_t i = nodes_[at].tokens;
    while (i < nodes_[at].end && text_of(order_[i]).size() == depth) ++i;
    nodes_[at].own_end = i;
    nodes_[at].first = static_cast<uint32_t>(nodes_.size());
    while (i < nodes_[at].end) {
      Node child;
      child.tokens = i;
      child.depth = static_cast<uint16_t>(depth + 1);
      child.byte = static_cast<uint8_t>(text_of(order_[i])[depth]);
      while (i < nodes_[at].end && static_cast<uint8_t>(text_of(order_[i])[depth]) == child.byte) ++i;
      child.end = i;
      nodes_.push_back(child);
    }
    nodes_[at].children = static_cast<uint32_t>(nodes_.size()) - nodes_[at].first;
    for (uint32_t child = nodes_[at].children; child-- > 0;) open.push_back(nodes_[at].first + child);
  }
}

void TokenIndex::build_subtrees() {
  struct Known {
    Subtree below;
    bool well_formed = true;
  };
  const auto size = static_cast<uint32_t>(nodes_.size());
  std::vector<uint8_t> boundary(size, 0);  // whether the bytes up to here are whole characters
  std::vector<uint8_t> broken(size, 0);    // or cannot become any
  for (uint32_t i = 0; i < size; ++i) {
    std::string_view rest = text_of(order_[nodes_[i].tokens]).substr(0, nodes_[i].depth);
    while (!rest.empty()) {
      const auto step = tokenizer::next_utf8(rest);
      if (step.kind == tokenizer::Utf8Step::Kind::invalid) broken[i] = 1;
      if (step.kind != tokenizer::Utf8Step::Kind::complete) break;
      rest.remove_prefix(step.length);
    }
    boundary[i] = rest.empty();
  }
  std::vector<Known> known(size);
  subtrees_.push_back({});
  for (uint32_t i = size; i-- > 0;) {
    Known& node = known[i];
    node.well_formed = !broken[i];
    for (uint32_t child = nodes_[i].first; child < nodes_[i].first + nodes_[i].children; ++child) {
      const uint8_t byte = nodes_[child].byte;
      const Subtree& below = known[child].below;
      node.well_formed &= known[child].well_formed;
      node.below.occur.ascii[0] |= below.occur.ascii[0];
      node.below.occur.ascii[1] |= below.occur.ascii[1];
      node.below.occur.leads |= below.occur.leads;
      node.below.occur.add(byte);
      const uint32_t starts = (byte & 0xC0) != 0x80 ? 1 : 0;
      node.below.characters = std::max(node.below.characters, below.characters + starts);
    }
    if (!node.well_formed || !boundary[i] || nodes_[i].children == 0) continue;
    nodes_[i].subtree = static_cast<uint32_t>(subtrees_.size());
    subtrees_.push_back(node.below);
  }
}

}  // namespace godwit::grammar
