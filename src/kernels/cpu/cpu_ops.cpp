#include "kernels/cpu/cpu_ops.h"

#include <cstdlib>
#include <cstring>

#include "kernels/cpu/limits.h"

namespace godwit::cpu {
namespace {

constexpr int64_t kFloatBytes = static_cast<int64_t>(sizeof(float));

struct Need {
  std::string_view op;
  int64_t thread_floats;
  int64_t shared_floats;
};

std::vector<Need> needs_of(const Dims& dims, const StepLimits& limits) {
  return {
      {"linear", kLinearFloats, 0},
      {"mhc", mhc_thread_floats(dims), 0},
      {"kda_chunk", kda_chunk_thread_floats(dims), 0},
      {"kda_step", kda_step_thread_floats(dims), 0},
      {"index_select", index_select_thread_floats(dims), index_select_shared_floats()},
      {"mla_attend", mla_thread_floats(dims), 0},
      {"experts", experts_thread_floats(dims), experts_shared_floats(dims, limits)},
      {"sample", sample_thread_floats(dims), 0},
  };
}

// Cache lines are never shared between threads.
int64_t rounded(int64_t floats) {
  return (floats + 15) / 16 * 16;
}

struct Scratch {
  std::string_view thread_op, shared_op;  // the op that sets each size
  int64_t thread_floats = 0;
  int64_t shared_floats = 0;
};

// Ops run one after the other, so they share one area of the size of the hungriest.
Scratch scratch_of(const Dims& dims, const StepLimits& limits) {
  Scratch s;
  for (const Need& need : needs_of(dims, limits)) {
    if (need.thread_floats > s.thread_floats) {
      s.thread_op = need.op;
      s.thread_floats = rounded(need.thread_floats);
    }
    if (need.shared_floats > s.shared_floats) {
      s.shared_op = need.op;
      s.shared_floats = rounded(need.shared_floats);
    }
  }
  return s;
}

}  // namespace

void* HostMemory::allocate(int64_t bytes) {
  return allocate_present(static_cast<size_t>(bytes));
}
void HostMemory::release(void* p) {
  std::free(p);
}
void HostMemory::upload(void* to, const void* from_host, int64_t bytes) {
  std::memcpy(to, from_host, static_cast<size_t>(bytes));
}
void HostMemory::download(void* to_host, const void* from, int64_t bytes) {
  std::memcpy(to_host, from, static_cast<size_t>(bytes));
}
void HostMemory::copy(void* to, const void* from, int64_t bytes) {
  std::memmove(to, from, static_cast<size_t>(bytes));
}
void HostMemory::zero(void* p, int64_t bytes) {
  std::memset(p, 0, static_cast<size_t>(bytes));
}

std::vector<kernels::ScratchEntry> CpuOps::scratch(const Dims& dims, const StepLimits& limits) const {
  const Scratch s = scratch_of(dims, limits);
  return {{s.thread_op, s.thread_floats * pool_.threads() * kFloatBytes},
          {s.shared_op, s.shared_floats * kFloatBytes}};
}

void CpuOps::poison(Buffer& area) {
  std::memset(area.data(), 0xff, area.bytes());  // NaN
}

Result<void> CpuOps::prepare(const Dims& dims, const StepLimits& limits) {
  if (dims.index_pool > 0 &&
      (kernels::kPageTokens % dims.index_pool != 0 || dims.index_topk % dims.index_pool != 0))
    return make_error(ErrorCode::data_refused, "index_kpool",
                      "index_kpool {} must divide the page of {} tokens and index_topk {}", dims.index_pool,
                      kernels::kPageTokens, dims.index_topk);
  const struct {
    const char* field;
    int64_t value, most;
  } bounds[] = {
      {"hc_mult", dims.streams, kMaxStreams},
      {"short_conv_kernel_size", dims.conv_taps, kMaxTaps},
      {"index_n_heads", dims.index_heads, kMaxIndexHeads},
      {"num_experts_per_tok", dims.experts_topk, kMaxExpertsChosen},
      {"hidden_size", dims.hidden, kQuantFloats},
      {"intermediate_size", dims.widest_inner, kQuantFloats},
      {"num_attention_heads * v_head_dim", dims.mla_heads * dims.value, kQuantFloats},
      {"rows of a step", limits.rows, Pool::kMaxTasks},
  };
  for (const auto& bound : bounds) {
    if (bound.value > bound.most)
      return make_error(ErrorCode::data_refused, bound.field,
                        "{} {} is above the {} the CPU backend supports", bound.field, bound.value,
                        bound.most);
  }
  if (dims.experts_topk > dims.experts)
    return make_error(ErrorCode::data_refused, "num_experts_per_tok",
                      "num_experts_per_tok {} is above n_routed_experts {}", dims.experts_topk, dims.experts);
  dims_ = dims;
  const Scratch s = scratch_of(dims, limits);
  scratch_ = Buffer(static_cast<size_t>(s.thread_floats * pool_.threads() * kFloatBytes));
  shared_scratch_ = Buffer(static_cast<size_t>(s.shared_floats * kFloatBytes));
  thread_scratch_.clear();
  for (int i = 0; i < pool_.threads(); ++i)
    thread_scratch_.push_back(scratch_.as<float>() + i * s.thread_floats);
  return {};
}

}  // namespace godwit::cpu

namespace godwit::kernels {

std::unique_ptr<Ops> make_cpu_ops(int threads) {
  return std::make_unique<cpu::CpuOps>(threads);
}

}  // namespace godwit::kernels
