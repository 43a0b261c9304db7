// GrammarCache: compiled grammars of recent requests. Agents send the same tools and schemas again and again:
// the second time costs a look-up, and the masks that were made for the first are there.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "grammar/grammar.h"

namespace godwit::grammar {

// Safe from any thread.
class GrammarCache {
 public:
  explicit GrammarCache(std::shared_ptr<const TokenIndex> index, size_t capacity = 32)
      : index_(std::move(index)), capacity_(capacity) {}

  // As compile(); the least recently used grammar makes room. Refused specs are not kept.
  Result<std::shared_ptr<const Grammar>> get(const GrammarSpec& spec);

  struct Counts {
    uint64_t hits = 0;
    uint64_t misses = 0;
  };
  Counts counts() const;

 private:
  using Entry = std::pair<std::string, std::shared_ptr<const Grammar>>;  // by the text of the spec

  std::shared_ptr<const TokenIndex> index_;
  size_t capacity_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // the most recently used first
  std::unordered_map<std::string_view, std::list<Entry>::iterator> by_text_;
  Counts counts_;
};

}  // namespace godwit::grammar
