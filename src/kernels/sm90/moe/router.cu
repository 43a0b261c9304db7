// The router (glm5_next spec §11.2): logits in f32, eight experts a block, and for few rows all that follows
// from them in the same launch: the block that ends last chooses and groups, while blocks beside the logits
// quantise the rows.
#include <algorithm>

#include "kernels/sm90/linear/quantize.cuh"
#include "kernels/sm90/moe/moe.h"
#include "kernels/sm90/moe/plan.cuh"

namespace godwit::sm90 {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kExperts = 8;  // of a block; its warps share the columns
constexpr int kPieces = 2;   // 8 columns of a lane each
constexpr int kSlice = kPieces * 8 * 32;
constexpr int64_t kMostColumns = kWarps * kSlice;
constexpr int kMostRows = 16;  // of a block
constexpr int64_t kFewRows = 16;
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
  bool finishes;
  int32_t* ended;  // blocks that have written their logits; 0 between launches
  Quantized codes;
  Chooser chooser;
  Choice choice;
};

struct Eight {
  float4 first, last;
};
__device__ inline Eight load_eight(const float* x) {
  return {*reinterpret_cast<const float4*>(x), *reinterpret_cast<const float4*>(x + 4)};
}
__device__ inline Eight load_eight(const bf16* x) {
  const uint4 v = *reinterpret_cast<const uint4*>(x);
  return {{low_half(v.x), high_half(v.x), low_half(v.y), high_half(v.y)},
          {low_half(v.z), high_half(v.z), low_half(v.w), high_half(v.w)}};
}

// Sums of eight values over the warp: lane l gets that of value l / 4.
__device__ inline float sum_of_eight(const float (&v)[kExperts]) {
  const int lane = threadIdx.x % 32;
  float four[4], two[2];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const bool high = (lane & 16) != 0;
    four[i] = (high ? v[i + 4] : v[i]) + __shfl_xor_sync(0xffffffffu, high ? v[i] : v[i + 4], 16);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const bool high = (lane & 8) != 0;
    two[i] = (high ? four[i + 2] : four[i]) + __shfl_xor_sync(0xffffffffu, high ? four[i] : four[i + 2], 8);
  }
  const bool high = (lane & 4) != 0;
  float sum = (high ? two[1] : two[0]) + __shfl_xor_sync(0xffffffffu, high ? two[0] : two[1], 4);
  sum += __shfl_xor_sync(0xffffffffu, sum, 2);
  return sum + __shfl_xor_sync(0xffffffffu, sum, 1);
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
#pragma unroll 1
  for (int32_t t = begin; t < end; ++t) {
    const X* x = a.x(t) + k;
    float sums[kExperts] = {};
#pragma unroll
    for (int j = 0; j < kPieces; ++j) {
      Eight eight{};
      if (k + 256 * j < a.columns) eight = load_eight(x + 256 * j);
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
    const float sum = sum_of_eight(sums);
    if (lane % 4 == 0) partial[t - begin][warp][lane / 4] = sum;
  }
  __syncthreads();
  const int row = static_cast<int>(threadIdx.x) / kExperts, expert = static_cast<int>(threadIdx.x) % kExperts;
  if (begin + row < end && first_expert + expert < a.chooser.experts) {
    float sum = 0;
    for (int i = 0; i < kWarps; ++i) sum += partial[row][i][expert];
    a.logits(begin + row)[first_expert + expert] = sum;
  }
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

template <class X>
__global__ void __launch_bounds__(kThreads) router_kernel(const __grid_constant__ Router<X> a) {
  let_next_start();
  if (static_cast<int32_t>(blockIdx.x) >= a.logit_blocks) return quantize_rows(a);
  write_logits(a);
  if (!a.finishes) return;
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
  const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll 1
  for (int32_t t = 0; t < a.rows; ++t) {
    const Candidates row = candidates_at(memory, a.chooser.experts, t);
#pragma unroll 1
    for (int32_t e = threadIdx.x; e < a.chooser.experts; e += kThreads) enter(a.chooser, t, e, row);
  }
  __syncthreads();
#pragma unroll 1
  for (int32_t t = warp; t < a.rows; t += kWarps) {
    choose(a.chooser, t, candidates_at(memory, a.chooser.experts, t));
  }
  __syncthreads();
  plan_few(a.choice, reinterpret_cast<int32_t*>(memory));
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

// `quantized`: blocks beside those of the logits.
template <class X>
void launch(cudaStream_t stream, Router<X> r, int multiprocessors, int64_t quantized) {
  static const bool sized = [] {
    check(cudaFuncSetAttribute(router_kernel<X>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(kFewRows * candidate_bytes(kFewExperts))),
          "route");
    return true;
  }();
  static_cast<void>(sized);
  r.expert_blocks = (r.chooser.experts + kExperts - 1) / kExperts;
  const int32_t row_blocks = std::clamp(multiprocessors / r.expert_blocks, 1, std::max(r.rows, 1));
  r.rows_of_block = std::min(kMostRows, (r.rows + row_blocks - 1) / row_blocks);
  r.logit_blocks = r.expert_blocks * ((r.rows + r.rows_of_block - 1) / r.rows_of_block);
  const size_t candidates = static_cast<size_t>(r.rows) * candidate_bytes(r.chooser.experts);
  const size_t shared = r.finishes ? std::max(candidates, kFewChoices * sizeof(int32_t)) : 0;
  launch_dependent(stream, "route", blocks_for(r.logit_blocks + quantized, 1), kThreads, shared,
                   router_kernel<X>, r);
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
    launch(stream, router_of<bf16>(a), multiprocessors, 0);
  } else {
    launch(stream, router_of<float>(a), multiprocessors, 0);
  }
  choose_experts(stream, chooser_of(a), a.x.rows);
}

void choose(cudaStream_t stream, const kernels::Route& a) {
  if (a.x.rows > 0) choose_experts(stream, chooser_of(a), a.x.rows);
}

bool route_to_groups(cudaStream_t stream, const kernels::Route& a, const kernels::Experts& experts,
                     const kernels::Ffn* shared, const GroupedScratch& scratch, int multiprocessors) {
  if (!fits_router(a) || a.x.rows > kFewRows || a.w.out() > kFewExperts) return false;
  if (a.x.rows * a.ids.cols > kFewChoices) return false;
  int64_t quantized = 0;
  if (experts.dtype == DType::f8_e4m3)
    quantized = (a.x.rows * (scratch.x.padded / kFp8Block) + kWarps - 1) / kWarps;
  const auto finish = [&](auto r) {
    r.finishes = true;
    r.ended = scratch.ended;
    r.choice = choice_of(experts, shared, scratch);
    if (quantized > 0) r.codes = scratch.x;
    launch(stream, r, multiprocessors, quantized);
  };
  if (a.x.dtype == DType::bf16) {
    finish(router_of<bf16>(a));
  } else {
    finish(router_of<float>(a));
  }
  return true;
}

}  // namespace godwit::sm90
