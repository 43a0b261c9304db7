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
  for (int32_t id = 0; id < index->tokenizer_->size(); ++id) {
    if (!index->tokenizer_->has(id) || index->is_end(id)) continue;
    index->free_mask_[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
    const size_t bytes = index->text_of(id).size();
    if (bytes == 0 || bytes > kMaxTokenBytes) continue;
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
  nodes_.push_back({});
  std::vector<uint32_t> path{0};  // the nodes of the last token's prefixes
  std::string_view last;
  auto close = [&](size_t depth, uint32_t end) {
    while (path.size() > depth + 1) {
      nodes_[path.back()].end = end;
      path.pop_back();
    }
  };
  for (uint32_t i = 0; i < order_.size(); ++i) {
    const std::string_view text = text_of(order_[i]);
    const auto shared = static_cast<size_t>(
        std::mismatch(last.begin(), last.end(), text.begin(), text.end()).first - last.begin());
    close(shared, static_cast<uint32_t>(nodes_.size()));
    for (size_t d = shared; d < text.size(); ++d) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      Node node;
      node.tokens = node.own_end = i;
      node.depth = static_cast<uint16_t>(d + 1);
      node.byte = static_cast<uint8_t>(text[d]);
      nodes_.push_back(node);
    }
    nodes_[path.back()].own_end = i + 1;
    last = text;
  }
  const auto size = static_cast<uint32_t>(nodes_.size());
  close(0, size);
  nodes_[0].end = size;
  Node closing;
  closing.tokens = closing.own_end = static_cast<uint32_t>(order_.size());
  nodes_.push_back(closing);
}

void TokenIndex::build_subtrees() {
  struct Known {
    Subtree below;
    bool well_formed = true;
  };
  const auto size = static_cast<uint32_t>(nodes_.size() - 1);
  std::vector<uint8_t> boundary(size, 0);  // whether the bytes up to here are whole characters
  std::vector<uint8_t> broken(size, 0);    // or cannot become any
  std::string text;
  for (uint32_t i = 0; i < size; ++i) {
    text.resize(nodes_[i].depth);
    if (i > 0) text.back() = static_cast<char>(nodes_[i].byte);
    std::string_view rest = text;
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
    for (uint32_t child = i + 1; child < nodes_[i].end; child = nodes_[child].end) {
      const uint8_t byte = nodes_[child].byte;
      const Subtree& below = known[child].below;
      node.well_formed &= known[child].well_formed;
      node.below.ascii[0] |= below.ascii[0];
      node.below.ascii[1] |= below.ascii[1];
      node.below.multibyte |= below.multibyte || byte >= 0x80;
      if (byte < 0x80) node.below.ascii[byte / 64] |= uint64_t{1} << (byte % 64);
      const uint32_t starts = (byte & 0xC0) != 0x80 ? 1 : 0;
      node.below.characters = std::max(node.below.characters, below.characters + starts);
    }
    if (!node.well_formed || !boundary[i] || nodes_[i].end == i + 1) continue;
    nodes_[i].subtree = static_cast<uint32_t>(subtrees_.size());
    subtrees_.push_back(node.below);
  }
}

}  // namespace godwit::grammar
