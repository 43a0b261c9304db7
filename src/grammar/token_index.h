// TokenIndex: a tokenizer's tokens as a trie over their bytes, with what a mask needs to know about each
// subtree. One per model, shared by all grammars; immutable.
//
// Added tokens (control ids among them) are not in the trie: no grammar's text contains one (api spec §3.9).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "grammar/byte_dfa.h"
#include "tokenizer/control_ids.h"
#include "tokenizer/tokenizer.h"

namespace godwit::grammar {

class TokenIndex {
 public:
  // Children stand side by side, so that a walk which refuses or takes most of them reads memory in order.
  struct Node {
    uint32_t first = 0;     // the first child
    uint32_t children = 0;  // how many, by ascending byte
    uint32_t tokens = 0;    // into order(): the tokens that are this node's bytes …
    uint32_t own_end = 0;   // … end here,
    uint32_t end = 0;       // and those of the subtree follow up to here
    uint32_t subtree = 0;   // for subtree(); 0: there is nothing to know
    uint16_t depth = 0;     // bytes
    uint8_t byte = 0;       // the last of them
  };
  // The bytes below a node that ends between two characters, when all of them are well-formed characters or
  // the beginning of one.
  struct Subtree {
    SafeSet occur;            // the characters
    uint32_t characters = 0;  // in the longest token, beyond this node
  };

  // vocab_size: ids a mask covers, >= tokenizer->size(). end_ids: what ends a generation (api spec §1.5);
  // they are allowed where a grammar is complete. Errors: data_refused when an id is outside the vocabulary.
  static Result<std::shared_ptr<const TokenIndex>> make(std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                                                        int32_t vocab_size, std::span<const int32_t> end_ids);

  int32_t vocab_size() const { return vocab_size_; }
  size_t mask_words() const { return (static_cast<size_t>(vocab_size_) + 31) / 32; }
  const tokenizer::ControlIds& control() const { return control_; }
  std::span<const int32_t> end_ids() const { return end_ids_; }
  bool is_end(int32_t id) const;
  // The bytes of an ordinary token; empty for any other id.
  std::string_view text_of(int32_t id) const;
  uint32_t longest() const { return longest_; }  // bytes of the longest ordinary token
  // Every id that has a token, end ids excepted: what free text before a grammar may be. [mask_words()]
  std::span<const uint32_t> free_mask() const { return free_mask_; }
  // Every token of order(). [mask_words()]
  std::span<const uint32_t> text_mask() const { return text_mask_; }

  // nodes()[0] is the root (no bytes).
  std::span<const Node> nodes() const { return nodes_; }
  std::span<const int32_t> order() const { return order_; }  // ids, by their bytes
  const Subtree& subtree(uint32_t index) const { return subtrees_[index]; }

 private:
  TokenIndex() = default;
  void build_nodes();
  void build_subtrees();

  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  tokenizer::ControlIds control_;
  int32_t vocab_size_ = 0;
  uint32_t longest_ = 0;
  std::vector<int32_t> end_ids_;  // ascending
  std::vector<int32_t> order_;
  std::vector<Node> nodes_;
  std::vector<Subtree> subtrees_;
  std::vector<uint32_t> free_mask_;
  std::vector<uint32_t> text_mask_;
};

}  // namespace godwit::grammar
