// What one encoding thread needs between calls: merge scratch and a bounded cache pre-token -> ids. A call
// takes one from the pool and gives it back, so threads share nothing while they work, and there are never
// more of them than calls that ran at the same time.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "tokenizer/bpe.h"
#include "tokenizer/piece_key.h"

namespace godwit::tokenizer {

// Direct-mapped: a newcomer replaces what its slot held. One entry a cache line, a megabyte in all.
class PieceCache {
 public:
  static constexpr size_t kSlots = 1 << 14;
  static constexpr uint32_t kMaxIds = 11;

  struct Entry {
    PieceKey key;  // high = 0: empty
    std::array<int32_t, kMaxIds> ids;
    uint32_t count;
  };

  Entry& slot(const PieceKey& key) { return entries_[hash_key(key) & (kSlots - 1)]; }

 private:
  std::vector<Entry> entries_ = std::vector<Entry>(kSlots);
};

struct EncodeState {
  PieceCache cache;
  BpeScratch scratch;
  std::vector<uint32_t> ends;
};

class EncodePool {
 public:
  class Lease {
   public:
    explicit Lease(EncodePool& pool) : pool_(pool), state_(pool.take()) {}
    ~Lease() { pool_.give(std::move(state_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    EncodeState& operator*() { return *state_; }

   private:
    EncodePool& pool_;
    std::unique_ptr<EncodeState> state_;
  };

 private:
  std::unique_ptr<EncodeState> take() {
    {
      std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        auto state = std::move(idle_.back());
        idle_.pop_back();
        return state;
      }
    }
    return std::make_unique<EncodeState>();
  }
  void give(std::unique_ptr<EncodeState> state) {
    std::lock_guard lock(mutex_);
    idle_.push_back(std::move(state));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<EncodeState>> idle_;  // last in, first out: the warmest cache is used next
};

}  // namespace godwit::tokenizer
