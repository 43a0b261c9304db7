// The router (glm5_next spec §11.2): logits in f32, four experts a block, while blocks beside them quantise
// the rows; for few rows all that follows from the logits too: the block that ends last chooses and groups.
#include <algorithm>

#include "kernels/sm90/linear/quantize.cuh"
#include "kernels/sm90/moe/moe.h"
#include "kernels/sm90/moe/plan.cuh"

namespace godwit::sm90 {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kExperts = 4;  // of a block; its warps share the columns
constexpr int kPieces = 2;   // 8 columns of a lane each
constexpr int kSlice = kPieces * 8 * 32;
constexpr int64_t kMostColumns = kWarps * kSlice;
constexpr int kMostRows = 16;         // of a block
constexpr int64_t kFewRows = 8;       // whose choices are made by one block
constexpr int64_t kFewExperts = 512;  // whose candidates lie in shared memory for so many rows

template <class X>
struct Router {
  Rows<const X> x;  // [T, K]
  const bf16* w;    // [E, K]
  int64_t w_stride;
  int32_t columns, rows;
  int32_t expert_blocks, rows_of_block, logit_blocks;
  Rows<float> logits;  // [T, E]
  // Of few rows:
  int32_t* ended;  // blocks that have written their logits; 0 between launches
  Quantized codes;
  Chooser chooser;
  Choice choice;
};

struct Eight {
  float4 first, last;
};
// The same as it lies in memory.
template <class X>
struct Raw;
template <>
struct Raw<float> {
  float4 first, last;
};
template <>
struct Raw<bf16> {
  uint4 all;
};
__device__ inline Eight eight_of(const Raw<float>& v) {
  return {v.first, v.last};
}
__device__ inline Eight eight_of(const Raw<bf16>& v) {
  return {{low_half(v.all.x), high_half(v.all.x), low_half(v.all.y), high_half(v.all.y)},
          {low_half(v.all.z), high_half(v.all.z), low_half(v.all.w), high_half(v.all.w)}};
}

// Sums of kCount values over the warp: lane l gets that of value l kCount / 32.
template <int kCount>
__device__ inline float sum_of_each(float (&v)[kCount]) {
  const int lane = threadIdx.x % 32;
  int offset = 16;
#pragma unroll
  for (int count = kCount / 2; count > 0; count /= 2, offset /= 2) {
    const bool high = (lane & offset) != 0;
#pragma unroll
    for (int i = 0; i < count; ++i) {
      v[i] = (high ? v[i + count] : v[i]) + __shfl_xor_sync(0xffffffffu, high ? v[i] : v[i + count], offset);
    }
  }
#pragma unroll
  for (; offset > 0; offset /= 2) v[0] += __shfl_xor_sync(0xffffffffu, v[0], offset);
  return v[0];
}

// Warp w has columns [512 w, 512 w + 512), lane l of it 256 j + 8 l + {0 … 7}: a sum for each expert, joined
// over the lanes and then over the warps in order.
template <class X>
__device__ inline void write_logits(const Router<X>& a) {
  __shared__ float partial[kMostRows][kWarps][kExperts];
  const int lane = threadIdx.x % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const auto block = static_cast<int32_t>(blockIdx.x);
  const int32_t first_expert = block % a.expert_blocks * kExperts;
  const int32_t begin = block / a.expert_blocks * a.rows_of_block, end = min(a.rows, begin + a.rows_of_block);
  const int k = warp * kSlice + 8 * lane;
  uint4 w[kExperts][kPieces];
#pragma unroll
  for (int i = 0; i < kExperts; ++i) {
#pragma unroll
    for (int j = 0; j < kPieces; ++j) {
      w[i][j] = uint4{0, 0, 0, 0};
      if (first_expert + i < a.chooser.experts && k + 256 * j < a.columns) {
        w[i][j] = *reinterpret_cast<const uint4*>(a.w + (first_expert + i) * a.w_stride + k + 256 * j);
      }
    }
  }
  wait_for_previous();
  Raw<X> next[kPieces] = {};  // asked for a row ahead
  const auto load = [&](int32_t t) {
#pragma unroll
    for (int j = 0; j < kPieces; ++j) {
      if (k + 256 * j < a.columns) next[j] = *reinterpret_cast<const Raw<X>*>(a.x(t) + k + 256 * j);
    }
  };
  if (begin < end) load(begin);
#pragma unroll 1
  for (int32_t t = begin; t < end; ++t) {
    const Raw<X> now[kPieces] = {next[0], next[1]};
    if (t + 1 < end) load(t + 1);
    float sums[kExperts] = {};
#pragma unroll
    for (int j = 0; j < kPieces; ++j) {
      const Eight eight = eight_of(now[j]);
      const float4 u = eight.first, v = eight.last;
#pragma unroll
      for (int i = 0; i < kExperts; ++i) {
        float sum = sums[i];
        sum = fmaf(low_half(w[i][j].x), u.x, sum);
        sum = fmaf(high_half(w[i][j].x), u.y, sum);
        sum = fmaf(low_half(w[i][j].y), u.z, sum);
        sum = fmaf(high_half(w[i][j].y), u.w, sum);
        sum = fmaf(low_half(w[i][j].z), v.x, sum);
        sum = fmaf(high_half(w[i][j].z), v.y, sum);
        sum = fmaf(low_half(w[i][j].w), v.z, sum);
        sums[i] = fmaf(high_half(w[i][j].w), v.w, sum);
      }
    }
    constexpr int kLanes = 32 / kExperts;
    const float sum = sum_of_each(sums);
    if (lane % kLanes == 0) partial[t - begin][warp][lane / kLanes] = sum;
  }
  __syncthreads();
  const int row = static_cast<int>(threadIdx.x) / kExperts, expert = static_cast<int>(threadIdx.x) % kExperts;
  if (begin + row < end && first_expert + expert < a.chooser.experts) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) sum += partial[row][i][expert];
    a.logits(begin + row)[first_expert + expert] = sum;
  }
}

// The entries of the experts of a block.
template <class X>
__device__ inline void prefetch_experts(const Router<X>& a) {
  constexpr int kBytes = static_cast<int>(sizeof(kernels::ExpertWeights)), kLine = 128;
  constexpr int kLines = kBytes * kExperts / kLine + 1;
  const int32_t first = static_cast<int32_t>(blockIdx.x) % a.expert_blocks * kExperts - a.choice.first;
  const int32_t at = static_cast<int32_t>(threadIdx.x) * kLine;
  if (static_cast<int>(threadIdx.x) >= kLines || first + at / kBytes < 0 ||
      first + at / kBytes >= a.choice.held)
    return;
  prefetch(reinterpret_cast<const uint8_t*>(a.choice.experts + first) + at);
}

template <class X>
__device__ inline void quantize_rows(const Router<X>& a) {
  wait_for_previous();
  const auto groups = static_cast<uint32_t>(a.codes.padded / kFp8Block);
  const uint32_t task = (blockIdx.x - static_cast<uint32_t>(a.logit_blocks)) * kWarps + threadIdx.x / 32;
  const uint32_t row = task / groups;
  if (row < static_cast<uint32_t>(a.rows)) {
    quantize_group(a.x(row), a.columns, a.codes, row, task - row * groups);
  }
}

// kFinishes: few rows, and all that follows from their logits.
template <class X, bool kFinishes>
__global__ void __launch_bounds__(kThreads, 2) router_kernel(const __grid_constant__ Router<X> a) {
  let_next_start();
  if (static_cast<int32_t>(blockIdx.x) >= a.logit_blocks) return quantize_rows(a);
  if constexpr (!kFinishes) {
    write_logits(a);
  } else {
    // What the last block reads, on its way while the rows are made.
    __shared__ float bias[kFewExperts];
    const int32_t experts = a.chooser.experts, chosen = a.chooser.chosen;
#pragma unroll 1
    for (int32_t e = threadIdx.x; e < experts; e += kThreads) copy_word_async(bias + e, a.chooser.bias + e);
    commit_copies();
    prefetch_experts(a);
    write_logits(a);
    wait_copies<0>();
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      last = atomicAdd(a.ended, 1) == a.logit_blocks - 1;
      if (last) *a.ended = 0;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    auto* const memory = dynamic_shared<uint32_t>();
    const auto row_at = [&](int32_t t) { return candidates_at(memory + kFewChoices, experts, chosen, t); };
    constexpr int kAtOnce = 4;
#pragma unroll 1
    for (int32_t first = threadIdx.x; first < a.rows * experts; first += kAtOnce * kThreads) {
      float logit[kAtOnce];
      int32_t row[kAtOnce], expert[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int32_t at = min(first + i * kThreads, a.rows * experts - 1);
        row[i] = a.rows == 1
                     ? 0
                     : static_cast<int32_t>(static_cast<uint32_t>(at) / static_cast<uint32_t>(experts));
        expert[i] = at - row[i] * experts;
        logit[i] = __ldcg(a.logits(row[i]) + expert[i]);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i * kThreads >= a.rows * experts) break;
        enter(logit[i], bias[expert[i]], expert[i], row_at(row[i]));
      }
    }
    __syncthreads();
#pragma unroll 1
    for (int32_t t = threadIdx.x / 32; t < a.rows; t += kWarps) choose(a.chooser, t, row_at(t));
    __syncthreads();
    plan_few(a.choice, reinterpret_cast<int32_t*>(memory),
             [&](int32_t t, int32_t i) { return row_at(t).chosen[i]; });
  }
}

template <class X>
Router<X> router_of(const kernels::Route& a) {
  Router<X> r{};
  r.x = rows_of<const X>(a.x);
  r.w = static_cast<const bf16*>(a.w.data.data);
  r.w_stride = a.w.data.stride;
  r.columns = static_cast<int32_t>(a.w.in());
  r.rows = static_cast<int32_t>(a.x.rows);
  r.logits = rows_of<float>(a.logits);
  r.chooser = chooser_of(a);
  return r;
}

// Of a launch that finishes.
constexpr size_t shared_bytes(int64_t rows, int64_t experts, int64_t chosen) {
  return kFewChoices * sizeof(int32_t) + static_cast<size_t>(rows) * candidate_bytes(experts, chosen);
}

// `quantized`: blocks beside those of the logits.
template <class X>
void launch(cudaStream_t stream, Router<X> r, int multiprocessors, bool finishes, int64_t quantized) {
  static const bool sized = [] {
    check(cudaFuncSetAttribute(router_kernel<X, true>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(shared_bytes(kFewRows, kFewExperts, kFewChoices / kFewRows))),
          "route");
    return true;
  }();
  static_cast<void>(sized);
  r.expert_blocks = (r.chooser.experts + kExperts - 1) / kExperts;
  const int32_t row_blocks = std::clamp(2 * multiprocessors / r.expert_blocks, 1, std::max(r.rows, 1));
  r.rows_of_block = std::min(kMostRows, (r.rows + row_blocks - 1) / row_blocks);
  r.logit_blocks = r.expert_blocks * ((r.rows + r.rows_of_block - 1) / r.rows_of_block);
  launch_dependent(stream, "route", blocks_for(r.logit_blocks + quantized, 1), kThreads,
                   finishes ? shared_bytes(r.rows, r.chooser.experts, r.chooser.chosen) : 0,
                   finishes ? router_kernel<X, true> : router_kernel<X, false>, r);
}

}  // namespace

Chooser chooser_of(const kernels::Route& a) {
  return {rows_of<const float>(a.logits),   a.bias,  static_cast<int32_t>(a.w.out()),
          static_cast<int32_t>(a.ids.cols), a.scale, rows_of<int32_t>(a.ids),
          rows_of<float>(a.weights)};
}

bool fits_router(const kernels::Route& a) {
  const auto aligned = [](const void* at) { return reinterpret_cast<uintptr_t>(at) % 16 == 0; };
  return a.w.data.dtype == DType::bf16 && a.w.in() % 8 == 0 && a.w.in() <= kMostColumns &&
         a.w.data.stride % 8 == 0 && aligned(a.w.data.data) && aligned(a.x.data) &&
         a.x.stride * size_of(a.x.dtype) % 16 == 0;
}

void route(cudaStream_t stream, const kernels::Route& a, int multiprocessors) {
  if (a.x.rows == 0) return;
  if (a.x.dtype == DType::bf16) {
    launch(stream, router_of<bf16>(a), multiprocessors, false, 0);
  } else {
    launch(stream, router_of<float>(a), multiprocessors, false, 0);
  }
  choose_experts(stream, chooser_of(a), a.x.rows);
}

void choose(cudaStream_t stream, const kernels::Route& a) {
  if (a.x.rows > 0) choose_experts(stream, chooser_of(a), a.x.rows);
}

bool route_to_groups(cudaStream_t stream, const kernels::Route& a, const kernels::Experts& experts,
                     const kernels::Ffn* shared, const GroupedScratch& scratch, int multiprocessors) {
  if (!fits_router(a)) return false;
  const bool few = a.x.rows <= kFewRows && a.w.out() <= kFewExperts && a.x.rows * a.ids.cols <= kFewChoices;
  const Choice choice = choice_of(experts, shared, scratch);
  int64_t quantized = 0;
  if (experts.dtype == DType::f8_e4m3)
    quantized = (a.x.rows * (scratch.x.padded / kFp8Block) + kWarps - 1) / kWarps;
  const auto start = [&](auto r) {
    r.ended = scratch.ended;
    r.choice = choice;
    if (quantized > 0) r.codes = scratch.x;
    launch(stream, r, multiprocessors, few, quantized);
  };
  if (a.x.dtype == DType::bf16) {
    start(router_of<bf16>(a));
  } else {
    start(router_of<float>(a));
  }
  if (few) return true;
  choose_groups(stream, chooser_of(a), choice, scratch.ended);
  return true;
}

}  // namespace godwit::sm90
