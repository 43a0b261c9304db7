// Routed and shared experts, decode form (kernels spec §3.8): every expert's weights are read once for all
// rows that chose it. One launch multiplies gate and up and applies SwiGLU, one multiplies down (down.cu).
#include <algorithm>

#include "kernels/sm90/moe/grouped.cuh"
#include "kernels/sm90/moe/moe.h"

namespace godwit::sm90 {
namespace {

using skinny::kTileRows;
using skinny::Split;
using skinny::Tiles;
using skinny::X;

constexpr int kPairs = kTileRows;  // gate and up rows of a row group: one tile each

// Gate and up, over all (group, pair of rows). Where there are many, a CTA takes whole chunks from a counter:
// the memory gives some SMs a quarter more than others. Where there are few, every CTA has an equal share.
template <class W>
struct Up {
  static constexpr int kQueue = 4;
  const Work& a;
  int32_t* next_unit;          // [kQueue], shared: of chunk i + 2 of this CTA in [i % kQueue]
  int32_t begin, end, routed;  // pairs
  int32_t chunk_pairs;
  bool counted;

  __device__ explicit Up(const Work& work, int32_t* queue) : a(work), next_unit(queue) {
    routed = a.groups.count[0] * a.routed.inner;
    const int32_t pairs = routed + a.groups.count[1] * a.shared_width.inner;
    const int most = kPairs << a.up.log_row_groups();
    // Copies run two turns ahead, so a chunk of three or more is left before its second successor is asked
    // for.
    counted = a.up.turns >= 3 && a.up.shift > 0 && pairs >= 4 * most * static_cast<int32_t>(gridDim.x);
    if (counted) {
      chunk_pairs = most, begin = static_cast<int32_t>(blockIdx.x) * most, end = pairs;
      return;
    }
    // A chunk of few pairs takes as long as a whole one: shares are even, in even chunks.
    const int64_t units = (pairs + 1) / 2;
    begin = static_cast<int32_t>(units * blockIdx.x / gridDim.x) * 2;
    end = min(pairs, static_cast<int32_t>(units * (blockIdx.x + 1) / gridDim.x) * 2);
    const int chunks = (end - begin + most - 1) / most;
    chunk_pairs = chunks == 0 ? most : (end - begin + chunks - 1) / chunks;
  }

  struct Chunk {
    int32_t at, group, pair, pairs, inner;  // its first pair, of all and in its group
    int32_t turn;                           // of this CTA's
    bool valid;
  };
  __device__ Chunk sized(Chunk c) const {
    c.pairs = min(chunk_pairs, min(c.inner - c.pair, end - c.at));
    c.valid = c.at < end;
    return c;
  }
  // The chunk that begins with pair `at`.
  __device__ Chunk at(int32_t at, int32_t turn) const {
    const bool shared = at >= routed;
    const int32_t inner = max(1, shared ? a.shared_width.inner : a.routed.inner);
    const int32_t within = at - (shared ? routed : 0);
    const int32_t group = within / inner;
    return sized(
        {at, group + (shared ? a.groups.count[0] : 0), within - group * inner, 0, inner, turn, false});
  }
  __device__ Chunk first() const { return at(begin, 0); }
  __device__ void next(Chunk& c) const {
    if (counted) {
      const int32_t turn = c.turn + 1;
      const int32_t unit =
          turn == 1 ? static_cast<int32_t>(gridDim.x + blockIdx.x) : next_unit[(turn - 2) % kQueue];
      c = at(min(unit, end / chunk_pairs + 1) * chunk_pairs, turn);
      return;
    }
    c.at += c.pairs, c.pair += c.pairs;
    if (c.pair == c.inner) {
      c.pair = 0, ++c.group;
      c.inner = c.at < routed ? a.routed.inner : a.shared_width.inner;
    }
    c = sized(c);
  }
  // One thread asks for the unit after the next, and says which it is before the barrier that ends the chunk.
  __device__ int32_t claim() const {
    if (!counted || threadIdx.x != 0) return 0;
    return static_cast<int32_t>(2 * gridDim.x) + atomicAdd(a.groups.count + kClaimed, 1);
  }
  __device__ void publish(const Chunk& c, int32_t unit) const {
    if (counted && threadIdx.x == 0) next_unit[c.turn % kQueue] = unit;
  }
  __device__ Split split(const Chunk&) const { return a.up; }
  __device__ static int pairs_of(const Chunk& c, int row_group) {
    return max(0, min(kPairs, c.pairs - row_group * kPairs));
  }
  __device__ Tiles<2> tiles(const Chunk& c, int row_group) const {
    const Group& e = a.groups.group[c.group];
    const int first = c.pair + min(row_group * kPairs, c.pairs - 1), count = pairs_of(c, row_group);
    Tiles<2> t;
    t.scale_stride = e.up_scale_stride;
    aim<W>(t, 0, e.gate, e.gate_scales, a.columns, first, count);
    aim<W>(t, 1, e.up, e.up_scales, a.columns, first, count);
    return t;
  }
  __device__ X x(const Chunk&, int) const { return a.x; }
  __device__ int32_t count(const Chunk& c, int) const { return a.groups.group[c.group].rows; }
  __device__ auto row_of(const Chunk& c, int) const {
    return [tokens = a.groups.token + a.groups.group[c.group].first](int column) { return tokens[column]; };
  }
  template <class Sum>
  __device__ void store(const Chunk& c, int row_group, int, Sum sum, int thread, int threads) const {
    const Group& group = a.groups.group[c.group];
    const int row = thread % 32;
    if (row >= pairs_of(c, row_group)) return;
#pragma unroll 1
    for (int column = thread / 32; column < group.rows; column += threads / 32) {
      float* inner = a.inner(a.groups.entry[group.first + column]) + c.pair + row_group * kPairs;
      inner[row] = clamped_swiglu(sum(row, column), sum(kPairs + row, column), a.limit);
    }
  }
  __device__ void wait() const {}
};

template <class W, int kTiles>
__global__ void __launch_bounds__(skinny::kThreads, kTiles == 1 ? 2 : 1)
    up_kernel(const __grid_constant__ Work a) {
  // In this order: when the next launch begins, the groups are there, which it reads before its own wait.
  wait_for_previous();
  let_next_start();
  int32_t* const queue =
      dynamic_shared<int32_t>() + skinny::Form<W, 2, kTiles>::kSharedBytes / sizeof(int32_t);
  skinny::run<W, 2, kTiles>(Up<W>(a, queue));
}

template <class W, int kTiles>
void launch_up(cudaStream_t stream, const Work& work, int multiprocessors) {
  static const bool sized = (allow_shared(up_kernel<W, kTiles>), true);
  static_cast<void>(sized);
  const auto blocks = static_cast<unsigned>(kTiles == 1 ? 2 * multiprocessors : multiprocessors);
  constexpr size_t kShared = skinny::Form<W, 2, kTiles>::kSharedBytes + Up<W>::kQueue * sizeof(int32_t);
  launch_dependent(stream, "experts", blocks, skinny::kThreads, kShared, up_kernel<W, kTiles>, work);
}

// UpW: the weights of the first product with what they meet; what lies between the products is f32 or codes.
template <class UpW, class W>
void launch(cudaStream_t stream, const Work& work, int multiprocessors) {
  const bool narrow = work.tokens <= kNarrowRows;
  if (narrow) {
    launch_up<UpW, 1>(stream, work, multiprocessors);
  } else {
    launch_up<UpW, 4>(stream, work, multiprocessors);
  }
  launch_down<W>(stream, work);
}

}  // namespace

Choice choice_of(const kernels::Experts& a, const kernels::Ffn* shared, const GroupedScratch& scratch) {
  const int64_t rows = a.x.rows;
  Choice c{};
  c.ids = rows_of<const int32_t>(a.ids);
  c.rows = static_cast<int32_t>(rows);
  c.chosen = static_cast<int32_t>(a.ids.cols);
  c.first = a.first_expert;
  c.held = a.expert_count;
  c.experts = a.experts;
  if (shared) c.shared = {shared->gate, shared->up, shared->down};
  c.has_shared = shared != nullptr;
  // Groups of one tile of rows, unless so many rows meet that most experts have more.
  c.width = rows <= kNarrowRows ? 8 : 32;
  c.to.group = static_cast<Group*>(scratch.groups);
  c.to.count = reinterpret_cast<int32_t*>(c.to.group + most_groups(rows, a.ids.cols));
  c.to.entry = c.to.count + 4;
  c.to.token = c.to.entry + rows * (a.ids.cols + 1);
  return c;
}

bool fits_grouped(const kernels::Experts& a, int64_t inner) {
  const int64_t bytes = size_of(a.dtype);
  if (a.dtype == DType::f32 || a.expert_count == 0) return false;
  if (a.x.cols * bytes % skinny::kBlockBytes != 0 || inner * bytes % skinny::kBlockBytes != 0) return false;
  return a.dtype == DType::f8_e4m3 ||
         (reinterpret_cast<uintptr_t>(a.x.data) % 16 == 0 && a.x.stride * size_of(a.x.dtype) % 16 == 0);
}

void grouped_experts(cudaStream_t stream, const kernels::Experts& a, const kernels::Ffn* shared,
                     bool is_grouped, const View& out, const GroupedScratch& scratch, int multiprocessors) {
  const int64_t rows = a.x.rows;
  if (rows == 0) return;
  const Choice choice = choice_of(a, shared, scratch);
  if (!is_grouped) {
    plan_groups(stream, choice);
    if (a.dtype == DType::f8_e4m3) quantize(stream, a.x, scratch.x, nullptr);
  }
  Work w{};
  w.groups = choice.to;
  w.x = skinny::x_of(a.x, scratch.x);
  w.inner = {scratch.inner, scratch.inner_stride};
  w.inner_x = skinny::x_of({scratch.inner, DType::f32, 0, 0, scratch.inner_stride}, scratch.inner_codes);
  const auto blocks = [&](int64_t in) { return in * size_of(a.dtype) / skinny::kBlockBytes; };
  const auto width = [&](int64_t inner) {
    return Width{static_cast<int32_t>(inner), {0, static_cast<int32_t>(blocks(inner))}};
  };
  w.columns = static_cast<int32_t>(a.x.cols);
  w.routed = width(scratch.inner_width);
  if (shared) w.shared_width = width(shared->gate.out());
  w.up = skinny::split_of(blocks(a.x.cols));
  w.limit = a.limit;
  w.y = scratch.y;
  w.ids = rows_of<const int32_t>(a.ids);
  w.weights = rows_of<const float>(a.weights);
  w.first_expert = a.first_expert;
  w.held = a.expert_count;
  w.chosen = static_cast<int32_t>(a.ids.cols);
  w.tokens = static_cast<int32_t>(rows);
  w.out = rows_of<float>(out);
  if (a.dtype == DType::f8_e4m3) return launch<f8_e4m3, f8_e4m3>(stream, w, multiprocessors);
  if (a.x.dtype == DType::bf16) return launch<skinny::BothBf16, bf16>(stream, w, multiprocessors);
  launch<bf16, bf16>(stream, w, multiprocessors);
}

int64_t group_bytes(int64_t rows, int64_t chosen) {
  return 4 * int64_t{sizeof(int32_t)} + most_groups(rows, chosen) * int64_t{sizeof(Group)} +
         2 * rows * (chosen + 1) * int64_t{sizeof(int32_t)};
}

}  // namespace godwit::sm90
