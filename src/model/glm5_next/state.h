// Where a rank's cached state lives: pages of 64 tokens (latents, pooled index keys) and slots (KDA state,
// conv window, pending rows, index ring). All layers of a page lie together, and all committed state of a
// slot, so that each moves as one piece (design §9). Layout is a pure function of sizes: the ledger prices
// it, RankState allocates it.
#pragma once

#include <vector>

#include "config/model_config.h"
#include "kernels/ops.h"

namespace godwit::model {

struct StateLayout {
  int64_t page_bytes = 0;  // one page, all DSA layers
  int64_t slot_bytes = 0;  // one slot, all of it
  int64_t committed_bytes =
      0;                    // the leading part of a slot that a snapshot copies: KDA state and conv windows
  int32_t ring_length = 0;  // entries of the index ring
  DType window_dtype = DType::f32;  // of the conv window and the pending raw rows (design §7)

  // What the sums above are made of, for the ledger.
  int64_t page_latent_bytes = 0, page_pooled_bytes = 0;
  int64_t slot_state_bytes = 0, slot_window_bytes = 0, slot_pending_bytes = 0, slot_ring_bytes = 0;

  struct KdaLayer {
    int64_t state, window, pending_raw, pending_key, pending_delta, pending_decay;  // byte offsets in a slot
  };
  struct DsaLayer {
    int64_t latent, pooled;  // byte offsets in a page
    int64_t ring;            // byte offset in a slot
  };
  std::vector<KdaLayer> kda;    // by KDA layer, in layer order
  std::vector<DsaLayer> dsa;    // by DSA layer, in layer order; the draft layer last
  std::vector<int32_t> number;  // [layers, the draft layer last] its index in `kda` or `dsa`
};

// `kv_dtype` is a format of kernels/cache_format.h: 528 bytes a latent and 132 a pool of the real model in
// fp8 (design §7). More than one pending row means that the draft block runs: its layer has a cache, too.
StateLayout plan_state(const TextConfig& text, const kernels::Dims& dims, const kernels::StepLimits& limits,
                       DType kv_dtype);

// The allocated pools. Page 0 and slot 0 are reserved: padded rows point at them.
class RankState {
 public:
  // slots and pages count the reserved ones; snapshots are copies of a slot's committed part.
  RankState(kernels::Memory& memory, StateLayout layout, const kernels::Dims& dims, DType kv_dtype,
            int64_t pages, int64_t slots, int64_t snapshots);
  ~RankState();
  RankState(const RankState&) = delete;
  RankState& operator=(const RankState&) = delete;

  kernels::KdaState kda(int layer) const;
  kernels::DsaCache dsa(int layer) const;
  kernels::TokenHistory history() const { return {history_, vocab_}; }
  int32_t* last_token() const { return last_token_; }

  std::byte* page(int64_t i) const { return pages_ + i * layout_.page_bytes; }
  std::byte* slot(int64_t i) const { return slots_ + i * layout_.slot_bytes; }  // its committed part first
  std::byte* snapshot(int64_t i) const { return snapshots_ + i * layout_.committed_bytes; }
  void save(int32_t slot, int32_t snapshot);
  void restore(int32_t slot, int32_t snapshot);
  const StateLayout& layout() const { return layout_; }
  int64_t bytes() const { return bytes_; }

 private:
  void* take(int64_t bytes);

  kernels::Memory& memory_;
  StateLayout layout_;
  DType kv_dtype_;
  int64_t vocab_;
  int64_t bytes_ = 0;
  std::vector<void*> owned_;
  std::byte* pages_ = nullptr;      // [pages, page_bytes]
  std::byte* slots_ = nullptr;      // [slots, slot_bytes]
  std::byte* snapshots_ = nullptr;  // [snapshots, committed_bytes]
  int32_t* history_ = nullptr;      // [slots, V]
  int32_t* last_token_ = nullptr;   // [slots]
};

}  // namespace godwit::model
