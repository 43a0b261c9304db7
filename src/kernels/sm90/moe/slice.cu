// Routed experts of prefill rows (kernels spec §4.6): e4m3 products of warpgroups, 128 rows of one expert at
// a time. One launch multiplies gate and up and applies SwiGLU, one quantises, one multiplies down, one adds
// each row's results in ascending expert id, the shared expert's last. Everything a row gets depends on K
// only.
#include <algorithm>

#include "kernels/sm90/device/warpgroup.cuh"
#include "kernels/sm90/linear/quantize.cuh"
#include "kernels/sm90/moe/groups.cuh"
#include "kernels/sm90/moe/moe.h"

namespace godwit::sm90 {
namespace {

using kernels::ExpertWeights;

constexpr int kRows = 128, kColumns = 192, kStages = 5;
constexpr int kFeeders = 128,
              kThreads = kFeeders + 256;  // a warpgroup that copies, two that multiply 64 rows each
constexpr int kScaled = 32,
              kScales = kColumns / kScaled;  // columns that share their block's scale for certain
constexpr int kBlock = static_cast<int>(kFp8Block);

struct alignas(1024) Stage {
  uint8_t a[kRows * kBlock], b[kColumns * kBlock];
};
struct Shared {
  Stage stage[kStages];
  uint64_t full[kStages], empty[kStages];
};
constexpr size_t kSharedBytes = sizeof(Shared) + 1024;  // of which a part makes the stages aligned

// One of the two products. Gate and up of the same 96 columns make one tile; down takes 192.
struct SliceProduct {
  Groups groups;
  const ExpertWeights* experts;
  Quantized x;       // up: by token; down: by place in Groups::entry
  int32_t k_blocks;  //
  int32_t tiles;     // of columns
  int64_t width;     // columns of out
  float limit;       //
  Rows<float> out;   // up: by place in Groups::entry; down: by entry
};

struct Task {
  Group group;
  int32_t tile;
  __device__ Task(const SliceProduct& p, int32_t i) {
    const auto at = static_cast<uint32_t>(i) / static_cast<uint32_t>(p.tiles);  // the shorter division
    group = p.groups.group[at];
    tile = i - static_cast<int32_t>(at) * p.tiles;
  }
};
__device__ int32_t tasks(const SliceProduct& p) {
  return p.groups.count[0] * p.tiles;
}

// Where a thread is in the ring.
struct Cursor {
  int stage = 0;
  uint32_t parity = 0;
  __device__ void advance() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

// A thread copies the same 16-byte piece of every sixteenth row.
template <bool kUp>
__device__ void feed(const SliceProduct& p, Shared& s) {
  constexpr int kStep = kFeeders / 8, kOfA = kRows / kStep, kOfB = kColumns / kStep,
                kHalf = kUp ? kOfB / 2 : kOfB;
  const int piece = threadIdx.x % 8, row = threadIdx.x / 8;
  const int place = row * kBlock + (piece ^ row % 8) * 16;
  const int64_t width = p.x.padded;
  Cursor at;
#pragma unroll 1
  for (int32_t i = blockIdx.x; i < tasks(p); i += gridDim.x) {
    const Task task(p, i);
    const ExpertWeights& e = p.experts[task.group.expert];
    const uint8_t* a[kOfA];
    uint32_t present = 0;
#pragma unroll
    for (int r = 0; r < kOfA; ++r) {
      const int of = row + kStep * r;
      const bool there = of < task.group.rows;
      const int32_t from = task.group.first + (there ? of : 0);
      a[r] = p.x.codes + int64_t{kUp ? p.groups.token[from] : from} * width + piece * 16;
      present |= there ? 1u << r : 0u;
    }
    const int64_t column = int64_t{task.tile} * (kUp ? kColumns / 2 : kColumns) + row;
    const uint8_t* const w[2] = {
        static_cast<const uint8_t*>(kUp ? e.gate.data.data : e.down.data.data) + column * width + piece * 16,
        static_cast<const uint8_t*>(e.up.data.data) + column * width + piece * 16};
#pragma unroll 1
    for (int32_t k = 0; k < p.k_blocks; ++k, at.advance()) {
      Stage& stage = s.stage[at.stage];
      mbarrier_wait(&s.empty[at.stage], at.parity ^ 1);
#pragma unroll
      for (int r = 0; r < kOfA; ++r)
        copy_async(stage.a + place + r * kStep * kBlock, a[r] + k * kBlock, (present >> r & 1) != 0);
#pragma unroll
      for (int r = 0; r < kOfB; ++r) {
        const int of = r % kHalf * kStep;
        const bool there = column + of < p.width;
        copy_async(stage.b + place + r * kStep * kBlock, w[r / kHalf] + (there ? of * width + k * kBlock : 0),
                   there);
      }
      mbarrier_arrive_copies(&s.full[at.stage]);
    }
  }
  wait_copies<0>();
}

// Sums of 64 rows: [4 j + i] is row 16 warp + lane / 4 + 8 (i / 2), column 8 j + 2 (lane % 4) + i % 2.
using Sums = float[kColumns / 2];

template <bool kUp>
__device__ void store(const SliceProduct& p, const Task& task, int row, const Sums& sums) {
  const int quad = threadIdx.x % 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int r = row + 8 * h;
    if (r >= task.group.rows) continue;
    const int32_t place = task.group.first + r;
    if constexpr (kUp) {
      const int64_t first = int64_t{task.tile} * (kColumns / 2) + 2 * quad;
      float* to = p.out(place) + first;
#pragma unroll
      for (int j = 0; j < kColumns / 16; ++j) {
        if (first + 8 * j >= p.width) continue;
        const float *gate = sums + 4 * j + 2 * h, *up = gate + kColumns / 4;
        *reinterpret_cast<float2*>(to + 8 * j) = {clamped_swiglu(gate[0], up[0], p.limit),
                                                  clamped_swiglu(gate[1], up[1], p.limit)};
      }
    } else {
      const int64_t first = int64_t{task.tile} * kColumns + 2 * quad;
      float* to = p.out(p.groups.entry[place]) + first;
#pragma unroll
      for (int j = 0; j < kColumns / 8; ++j) {
        if (first + 8 * j < p.width)
          *reinterpret_cast<float2*>(to + 8 * j) = {sums[4 * j + 2 * h], sums[4 * j + 2 * h + 1]};
      }
    }
  }
}

template <bool kUp>
__device__ void multiply(const SliceProduct& p, Shared& s, int half) {
  const int lane = threadIdx.x % 32, row = 64 * half + threadIdx.x % 128 / 32 * 16 + lane / 4;
  Cursor at;
  const auto release = [&] {
    if (lane == 0) mbarrier_arrive(&s.empty[at.stage]);
  };
#pragma unroll 1
  for (int32_t i = blockIdx.x; i < tasks(p); i += gridDim.x) {
    const Task task(p, i);
    if (64 * half >= task.group.rows) {
#pragma unroll 1
      for (int32_t k = 0; k < p.k_blocks; ++k, at.advance()) {
        mbarrier_wait(&s.full[at.stage], at.parity);
        release();
      }
      continue;
    }
    // Scales come from memory a block of k ahead of their use; those of the weights one a lane.
    const float* x_scales[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int32_t from = task.group.first + min(row + 8 * h, task.group.rows - 1);
      x_scales[h] = p.x.scales + int64_t{kUp ? p.groups.token[from] : from} * p.k_blocks;
    }
    const int part = lane % kScales, parts = kUp ? kScales / 2 : kScales;
    const ExpertWeights& e = p.experts[task.group.expert];
    const Weight& w = !kUp ? e.down : part < parts ? e.gate : e.up;
    const int64_t column = int64_t{task.tile} * parts * kScaled + part % parts * kScaled;
    const float* w_scales = w.scales + min(column, p.width - 1) / kBlock * w.scale_stride;
    float ahead[3] = {x_scales[0][0], x_scales[1][0], w_scales[0]};
    Sums sums = {};
#pragma unroll 1
    for (int32_t k = 0; k < p.k_blocks; ++k, at.advance()) {
      const float x_scale[2] = {ahead[0], ahead[1]}, own = ahead[2];
      if (k + 1 < p.k_blocks)
        ahead[0] = __ldg(x_scales[0] + k + 1), ahead[1] = __ldg(x_scales[1] + k + 1),
        ahead[2] = __ldg(w_scales + k + 1);
      mbarrier_wait(&s.full[at.stage], at.parity);
      fence_products();
      const Stage& stage = s.stage[at.stage];
      const uint64_t a = wgmma_operand(stage.a + 64 * half * kBlock), b = wgmma_operand(stage.b);
      Sums product;
      wgmma_settle(product);
      wgmma_begin();
#pragma unroll
      for (int step = 0; step < kBlock / 32; ++step)
        wgmma_e4m3(product, a + 2 * step, b + 2 * step, step > 0);
      wgmma_commit();
      wgmma_wait();
      wgmma_settle(product);
      release();
#pragma unroll
      for (int g = 0; g < kScales; ++g) {
        const float w_scale = __shfl_sync(0xffffffffu, own, g);
        const float by[2] = {x_scale[0] * w_scale, x_scale[1] * w_scale};
#pragma unroll
        for (int c = 0; c < kScaled / 2; ++c) {
          const int v = g * (kScaled / 2) + c;
          sums[v] = fmaf(product[v], by[v % 4 / 2], sums[v]);
        }
      }
    }
    store<kUp>(p, task, row, sums);
  }
}

template <bool kUp>
__global__ void __launch_bounds__(kThreads, 1) product_kernel(const __grid_constant__ SliceProduct p) {
  Shared& s = *align_tiles<Shared>(dynamic_shared<uint8_t>());
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      mbarrier_init(&s.full[i], kFeeders);
      mbarrier_init(&s.empty[i], 8);  // warps that multiply
    }
  }
  __syncthreads();
  begin_dependent();
  const int group = threadIdx.x / 128;
  if (group == 0) {
    fewer_registers<56>();
    feed<kUp>(p, s);
  } else {
    more_registers<224>();
    multiply<kUp>(p, s, group - 1);
  }
}

constexpr int kRowThreads = 256, kRowWarps = kRowThreads / 32;

// The quantiser of kernels/quantize.h over the rows that are there: how many, only the device knows.
__global__ void __launch_bounds__(kRowThreads)
    encode_kernel(Groups groups, Rows<const float> x, Quantized to) {
  begin_dependent();
  const int32_t count = groups.count[0];
  if (count == 0) return;
  const Group last = groups.group[count - 1];
  const auto per_row = static_cast<uint32_t>(to.padded / kBlock);
  const uint32_t all = static_cast<uint32_t>(last.first + last.rows) * per_row, lane = threadIdx.x % 32;
#pragma unroll 1
  for (uint32_t task = blockIdx.x * kRowWarps + threadIdx.x / 32; task < all; task += gridDim.x * kRowWarps) {
    const uint32_t row = task / per_row, group = task - row * per_row;
    const float4 v = reinterpret_cast<const float4*>(x(row) + group * kBlock)[lane];
    const EncodedFour encoded = encode_group(v);
    reinterpret_cast<uint32_t*>(to.codes + int64_t{row} * to.padded + group * kBlock)[lane] = encoded.codes;
    if (lane == 0) to.scales[int64_t{row} * per_row + group] = encoded.scale;
  }
}

struct Combine {
  Rows<const int32_t> ids;    // [T, k]
  Rows<const float> weights;  // [T, k]
  Rows<const float> y;        // [T k, D]
  View shared;                // [T, D] f32 or bf16, or nothing
  int32_t first, held, chosen;
  int32_t width;
  Rows<float> out;  // [T, D]
};

// A block a row.
__global__ void __launch_bounds__(kRowThreads) combine_kernel(Combine a) {
  begin_dependent();
  const int64_t t = blockIdx.x;
  for (int32_t n = 4 * threadIdx.x; n < a.width; n += 4 * kRowThreads) {
    float4 sum{0, 0, 0, 0};
    for (int32_t c = 0; c < a.chosen; ++c) {
      const int32_t local = a.ids(t)[c] - a.first;
      if (local < 0 || local >= a.held) continue;
      const float by = a.weights(t)[c];
      const float4 v = *reinterpret_cast<const float4*>(a.y(t * a.chosen + c) + n);
      sum = {fmaf(by, v.x, sum.x), fmaf(by, v.y, sum.y), fmaf(by, v.z, sum.z), fmaf(by, v.w, sum.w)};
    }
    if (a.shared.data != nullptr) {
      float4 v;
      if (a.shared.dtype == DType::bf16) {
        const uint2 two = *reinterpret_cast<const uint2*>(row_of<bf16>(a.shared, t) + n);
        v = {low_half(two.x), high_half(two.x), low_half(two.y), high_half(two.y)};
      } else {
        v = *reinterpret_cast<const float4*>(row_of<float>(a.shared, t) + n);
      }
      sum = {sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w};
    }
    *reinterpret_cast<float4*>(a.out(t) + n) = sum;
  }
}

template <bool kUp>
void launch_product(cudaStream_t stream, const SliceProduct& p, int multiprocessors) {
  static const bool sized = [] {
    check(cudaFuncSetAttribute(product_kernel<kUp>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(kSharedBytes)),
          "experts");
    return true;
  }();
  static_cast<void>(sized);
  launch_dependent(stream, "experts", static_cast<unsigned>(multiprocessors), kThreads, kSharedBytes,
                   product_kernel<kUp>, p);
}

bool aligned_rows(const View& v) {
  return reinterpret_cast<uintptr_t>(v.data) % 16 == 0 && v.stride % 4 == 0;
}

}  // namespace

bool fits_slice(const kernels::Experts& a) {
  return a.dtype == DType::f8_e4m3 && a.expert_count > 0 && a.x.cols % kBlock == 0 && a.inner % kBlock == 0 &&
         a.inner > 0 && aligned_rows(a.out);
}

void slice_experts(cudaStream_t stream, const kernels::Experts& a, const View* shared, const View& out,
                   const GroupedScratch& scratch, int multiprocessors) {
  const int64_t rows = a.x.rows;
  if (rows == 0) return;
  Choice choice = choice_of(a, nullptr, scratch);
  choice.width = kRows;
  const Groups groups = choice.to;
  const auto product = [&](const Quantized& x, int64_t width, int columns, const Rows<float>& to) {
    return SliceProduct{groups,
                        a.experts,
                        x,
                        static_cast<int32_t>(x.padded / kBlock),
                        static_cast<int32_t>((width + columns - 1) / columns),
                        width,
                        a.limit,
                        to};
  };
  const Quantized inner_codes{scratch.inner_codes.codes, scratch.inner_codes.scales, a.inner};
  plan_groups(stream, choice);
  quantize(stream, a.x, scratch.x, nullptr);
  launch_product<true>(stream,
                       product(scratch.x, a.inner, kColumns / 2, {scratch.inner, scratch.inner_stride}),
                       multiprocessors);
  launch_dependent(stream, "experts", static_cast<unsigned>(8 * multiprocessors), kRowThreads, 0,
                   encode_kernel, groups, Rows<const float>{scratch.inner, scratch.inner_stride},
                   inner_codes);
  launch_product<false>(stream, product(inner_codes, a.x.cols, kColumns, {scratch.y, a.x.cols}),
                        multiprocessors);
  const Combine c{rows_of<const int32_t>(a.ids),
                  rows_of<const float>(a.weights),
                  {scratch.y, a.x.cols},
                  shared ? *shared : View{},
                  a.first_expert,
                  a.expert_count,
                  static_cast<int32_t>(a.ids.cols),
                  static_cast<int32_t>(a.x.cols),
                  rows_of<float>(out)};
  launch_dependent(stream, "experts", blocks_for(rows, 1), kRowThreads, 0, combine_kernel, c);
}

}  // namespace godwit::sm90
