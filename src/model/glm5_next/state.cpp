#include "model/glm5_next/state.h"

#include "base/fault.h"
#include "model/glm5_next/dims.h"

namespace godwit::model {
namespace {

constexpr int64_t kAlign = 64;

// Hands out aligned offsets in a record.
struct Offsets {
  int64_t end = 0;
  // Adds what it took to `part`.
  int64_t take(int64_t bytes, int64_t& part) {
    const int64_t at = end;
    const int64_t taken = (bytes + kAlign - 1) / kAlign * kAlign;
    end += taken;
    part += taken;
    return at;
  }
};

}  // namespace

StateLayout plan_state(const TextConfig& text, const kernels::Dims& d, const kernels::StepLimits& limits,
                       DType kv_dtype) {
  StateLayout out;
  const int64_t width = d.kda_heads * d.kda_key;
  out.window_dtype = kv_dtype == DType::f32 ? DType::f32 : DType::bf16;
  const int64_t raw = 3 * width * size_of(out.window_dtype);
  // P + pending rows, rounded up to whole pools, or a rejected draft would corrupt a finished pool (trap
  // T26).
  const int64_t pools = (d.index_pool + limits.pending_rows + d.index_pool - 1) / d.index_pool;
  out.ring_length = static_cast<int32_t>(pools * d.index_pool);

  Offsets page, slot;
  const auto dsa_page = [&] {
    StateLayout::DsaLayer s{};
    s.latent =
        page.take(kernels::kPageTokens * kernels::row_bytes(kv_dtype, d.latent), out.page_latent_bytes);
    s.pooled = page.take(kernels::kPageTokens / d.index_pool * kernels::row_bytes(kv_dtype, d.index_dim),
                         out.page_pooled_bytes);
    out.dsa.push_back(s);
  };
  for (const LayerConfig& layer : text.layers) {
    if (layer.attention == LayerAttention::kda) {
      out.number.push_back(static_cast<int32_t>(out.kda.size()));
      StateLayout::KdaLayer k{};
      k.state = slot.take(d.kda_heads * d.kda_key * d.kda_key * 4, out.slot_state_bytes);
      k.window = slot.take((d.conv_taps - 1) * raw, out.slot_window_bytes);
      out.kda.push_back(k);
    } else {
      out.number.push_back(static_cast<int32_t>(out.dsa.size()));
      dsa_page();
    }
  }
  if (drafts(limits) && text.num_nextn_predict_layers > 0) {
    out.number.push_back(static_cast<int32_t>(out.dsa.size()));
    dsa_page();
  }
  out.committed_bytes = slot.end;
  for (StateLayout::KdaLayer& k : out.kda) {
    k.pending_raw = slot.take(limits.pending_rows * raw, out.slot_pending_bytes);
    k.pending_key = slot.take(limits.pending_rows * width * 4, out.slot_pending_bytes);
    k.pending_delta = slot.take(limits.pending_rows * width * 4, out.slot_pending_bytes);
    k.pending_decay = slot.take(limits.pending_rows * width * 4, out.slot_pending_bytes);
  }
  for (StateLayout::DsaLayer& s : out.dsa)
    s.ring = slot.take(out.ring_length * 2 * d.index_dim * 4, out.slot_ring_bytes);
  out.page_bytes = page.end;
  out.slot_bytes = slot.end;
  return out;
}

RankState::RankState(kernels::Memory& memory, StateLayout layout, const kernels::Dims& dims, DType kv_dtype,
                     int64_t pages, int64_t slots, int64_t snapshots)
    : memory_(memory), layout_(std::move(layout)), kv_dtype_(kv_dtype), vocab_(dims.vocab) {
  pages_ = static_cast<std::byte*>(take(pages * layout_.page_bytes));
  slots_ = static_cast<std::byte*>(take(slots * layout_.slot_bytes));
  snapshots_ = static_cast<std::byte*>(take(snapshots * layout_.committed_bytes));
  history_ = static_cast<int32_t*>(take(slots * vocab_ * 4));
  last_token_ = static_cast<int32_t*>(take(slots * 4));
  // Only the reserved page and slot are ever read before they are written.
  memory_.zero(pages_, layout_.page_bytes);
  memory_.zero(slots_, layout_.slot_bytes);
  memory_.zero(last_token_, slots * 4);
}

RankState::~RankState() {
  for (void* p : owned_) memory_.release(p);
}

void* RankState::take(int64_t bytes) {
  bytes_ += bytes;
  owned_.push_back(memory_.allocate(bytes > 0 ? bytes : kAlign));
  return owned_.back();
}

kernels::KdaState RankState::kda(int layer) const {
  const auto& o = layout_.kda[static_cast<size_t>(layout_.number[static_cast<size_t>(layer)])];
  kernels::KdaState s;
  s.base = slots_;
  s.slot_stride = layout_.slot_bytes;
  s.state_offset = o.state;
  s.window_offset = o.window;
  s.pending_raw_offset = o.pending_raw;
  s.pending_key_offset = o.pending_key;
  s.pending_delta_offset = o.pending_delta;
  s.pending_decay_offset = o.pending_decay;
  s.window_dtype = layout_.window_dtype;
  return s;
}

kernels::DsaCache RankState::dsa(int layer) const {
  const auto& o = layout_.dsa[static_cast<size_t>(layout_.number[static_cast<size_t>(layer)])];
  kernels::DsaCache c;
  c.base = pages_;
  c.page_stride = layout_.page_bytes;
  c.latent_offset = o.latent;
  c.pooled_offset = o.pooled;
  c.latent_dtype = kv_dtype_;
  c.pooled_dtype = kv_dtype_;
  c.ring = slots_ + o.ring;
  c.ring_stride = layout_.slot_bytes;
  c.ring_length = layout_.ring_length;
  return c;
}

void RankState::save(int32_t slot, int32_t snapshot) {
  memory_.copy(snapshots_ + snapshot * layout_.committed_bytes, slots_ + slot * layout_.slot_bytes,
               layout_.committed_bytes);
}

void RankState::restore(int32_t slot, int32_t snapshot) {
  memory_.copy(slots_ + slot * layout_.slot_bytes, snapshots_ + snapshot * layout_.committed_bytes,
               layout_.committed_bytes);
  // Mutants of the gate cached = cold (design §2): each must make it fail.
  if (!layout_.kda.empty() && GODWIT_FAULT("mutant.window"))
    memory_.zero(slots_ + slot * layout_.slot_bytes + layout_.kda[0].window, 64);
  if (!layout_.kda.empty() && GODWIT_FAULT("mutant.state"))
    memory_.zero(slots_ + slot * layout_.slot_bytes + layout_.kda[0].state, 64);
}

}  // namespace godwit::model
