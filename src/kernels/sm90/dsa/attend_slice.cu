// mla_attend of prompt rows over bf16 or fp8 latents of 512 values (glm5_next spec §9.2, kernels spec §4.5).
// A block takes a row and 16 heads and walks the row's list in tiles of 32 entries, whose latents come by a
// ring. What a tile adds depends on the row's own list alone.
#include "kernels/sm90/dsa/list.cuh"
#include "kernels/sm90/dsa/paged.cuh"
#include "kernels/sm90/dsa/slice.cuh"
#include "kernels/sm90/launches.h"

namespace godwit::sm90 {
namespace {

using kernels::Sequence;

// Eight lanes copy a latent, the threads of a block a tile. What leads to its address is read ahead, one
// start after the other: the list two tiles, the page table one.
template <class Latents>
class Gather {
 public:
  __device__ Gather(const Attention& a, const List& list, const int32_t* pages)
      : cache_(a.cache), list_(list), pages_(pages), entry_(row()) {
    pool_ = list_.pool(entry_);
    look_up();
  }
  // The next tile of the list, zeros past its end; one group of copies.
  __device__ void start(uint8_t (&tile)[kTileTokens][Latents::kPitch]) {
    const int lane = threadIdx.x % kLanes;
    const std::byte* from = cache_.base + int64_t{page_} * cache_.page_stride + cache_.latent_offset +
                            in_page_ * Latents::kRowBytes + 16 * lane;
    uint8_t* to = tile[row()] + 16 * lane;
    const bool present = entry_ < list_.tokens;
    constexpr int kRun = 16 * kLanes;
#pragma unroll
    for (int i = 0; i < Latents::kRowBytes / kRun; ++i) copy_async(to + kRun * i, from + kRun * i, present);
    if constexpr (Latents::kRowBytes % kRun != 0) {
      static_assert(Latents::kRowBytes % kRun == 16);
      constexpr int kRest = Latents::kRowBytes - 16;
      if (lane == 0) copy_async(to + kRest, from + kRest, present);
    }
    commit_copies();
    entry_ += kTileTokens;
    look_up();
  }

 private:
  static constexpr int kLanes = 8;
  static_assert(kPieceThreads == kLanes * kTileTokens);
  __device__ static int row() {
    return static_cast<int>(threadIdx.x) / kLanes;
  }
  __device__ void look_up() {
    const int32_t position = list_.position(entry_, pool_);
    page_ = pages_[position / kPageTokens];
    in_page_ = position % kPageTokens;
    pool_ = list_.pool(entry_ + kTileTokens);
  }

  const kernels::DsaCache& cache_;
  const List& list_;
  const int32_t* pages_;
  int entry_;               // of the tile that is started next
  int32_t page_, in_page_;  // its place
  int32_t pool_;            // of the tile after it
};

template <class Latents>
__global__ void __launch_bounds__(kPieceThreads, 2)
    slice_kernel(StepView step, const __grid_constant__ Attention a) {
  constexpr int kStages = Latents::kStages;
  auto& slice = *dynamic_shared<Slice<Latents>>();
  let_next_start();
  // The last rows, whose lists may be longest, first.
  const int64_t t = step.rows - 1 - static_cast<int64_t>(blockIdx.x / a.head_groups);
  const int group = static_cast<int>(blockIdx.x % a.head_groups);
  const int heads = min(kPieceHeads, a.heads - group * kPieceHeads);
  const Sequence& s = step.sequence[step.row_sequence[t]];
  const auto end = static_cast<int32_t>(position_of(s, t) + 1);
  wait_for_previous();
  const List list(a.pools(t), a.count(t)[0], a.pool_shift, end);
  Gather<Latents> gather(a, list, step.pages + s.page_offset);
  const int64_t first_column = int64_t{group} * kPieceHeads * kWidth;
  const typename Latents::Query query(a.query(t) + first_column, heads);
#pragma unroll 1
  for (int stage = 0; stage < kStages - 1; ++stage) gather.start(slice.latents[stage]);
  Weights<Latents> weights;
  float sum[Latents::kTiles][4] = {};
  const int g = threadIdx.x % 32 / 4;
  wait_copies<kStages - 2>();
  __syncthreads();  // the first tile is there
  int stage = 0, free = kStages - 1;
#pragma unroll 1
  for (int first = 0; first < list.tokens; first += kTileTokens) {
    const uint8_t* const tile = slice.latents[stage][0];
    Latents::score(slice, tile, query);
    __syncthreads();  // scores are there, and nobody reads the tile before this one
    gather.start(slice.latents[free]);
    weights.put(slice, a.scale, list.tokens - first);
    wait_copies<kStages - 2>();
    __syncthreads();  // weights are there, and the next tile
    const float before[2] = {slice.before[Latents::scale_group()][g],
                             slice.before[Latents::scale_group()][g + 8]};
#pragma unroll
    for (auto& part : sum) {
#pragma unroll
      for (int j = 0; j < 4; ++j) part[j] *= before[j / 2];
    }
    Latents::add(slice, tile, sum);
    free = stage;
    stage = stage == kStages - 1 ? 0 : stage + 1;
  }
  wait_copies<0>();  // of the zeros past the end: the next block may have this memory
  weights.finish(slice);
  __syncthreads();
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (g + 8 * h >= heads) continue;
    const float last = slice.last[Latents::scale_group()][g + 8 * h];
#pragma unroll
    for (auto& part : sum) part[2 * h] *= last, part[2 * h + 1] *= last;
    Latents::store(a.out(t) + first_column + (g + 8 * h) * kWidth, sum, h);
  }
}

template <class Latents>
void launch(cudaStream_t stream, const StepView& step, const Attention& a) {
  static const bool sized = [] {
    check(cudaFuncSetAttribute(slice_kernel<Latents>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(sizeof(Slice<Latents>))),
          "mla_attend");
    return true;
  }();
  static_cast<void>(sized);
  const int64_t rows = step.rows - step.decode_rows;
  launch_dependent(stream, "mla_attend", blocks_for(rows * a.head_groups, 1), kPieceThreads,
                   sizeof(Slice<Latents>), slice_kernel<Latents>, step, a);
}

// Two blocks a multiprocessor, each with a kilobyte of the system's.
static_assert(2 * (sizeof(Slice<HalfSlice>) + 1024) <= 228 * 1024);
static_assert(2 * (sizeof(Slice<CodedSlice>) + 1024) <= 228 * 1024);

}  // namespace

void slice_attend(cudaStream_t stream, const StepView& step, const kernels::MlaAttend& a) {
  if (step.rows == step.decode_rows) return;
  constexpr float kLog2E = 1.44269504f;
  Attention s = attention_of(a, kPieceHeads);
  s.scale *= kLog2E;
  if (a.cache.latent_dtype == DType::bf16) {
    launch<HalfSlice>(stream, step, s);
  } else {
    launch<CodedSlice>(stream, step, s);
  }
}

}  // namespace godwit::sm90
