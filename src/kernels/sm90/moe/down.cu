// The second product of the grouped form: a CTA owns some columns of the output, meets all experts there, and
// adds what they give in ascending expert id, the shared expert last, as in the plain form.
#include "kernels/sm90/linear/quantize.cuh"
#include "kernels/sm90/moe/grouped.cuh"

namespace godwit::sm90 {
namespace {

using skinny::kTileRows;
using skinny::Split;
using skinny::Tiles;
using skinny::X;

// Down: a CTA owns 16 kRowTiles columns of the output. The row groups of a chunk take one group of rows each.
template <class W, int kRowTiles>
struct Down {
  static constexpr int kOwned = kRowTiles * kTileRows;
  const Work& a;
  float* y;  // [T (k + 1), kOwned] by entry
  int32_t first_column, owned;
  int32_t routed, all;  // groups

  __device__ Down(const Work& work, float* memory) : a(work) {
    first_column = static_cast<int32_t>(blockIdx.x) * kOwned;
    owned = min(kOwned, a.columns - first_column);
    routed = a.groups.count[0];
    all = routed + a.groups.count[1];
    y = a.y == nullptr ? memory : a.y + int64_t{blockIdx.x} * entries() * kOwned;
  }
  __device__ int32_t entries() const { return a.tokens * (a.chosen + 1); }

  struct Chunk {
    int32_t group, groups;
    bool valid;
  };
  __device__ const Width& width(const Chunk& c) const { return c.group < routed ? a.routed : a.shared_width; }
  __device__ Chunk at(int32_t group) const {
    Chunk c{group, 0, group < all};
    c.groups = min(width(c).down.row_groups(), (group < routed ? routed : all) - group);
    return c;
  }
  __device__ Chunk first() const { return at(0); }
  __device__ void next(Chunk& c) const { c = at(c.group + c.groups); }
  __device__ Split split(const Chunk& c) const { return width(c).down; }
  // A row group without work looks at the last, and copies nothing.
  __device__ const Group& group_of(const Chunk& c, int row_group) const {
    return a.groups.group[c.group + min(row_group, c.groups - 1)];
  }
  __device__ Tiles<kRowTiles> tiles(const Chunk& c, int row_group) const {
    const Group& e = group_of(c, row_group);
    Tiles<kRowTiles> t;
    t.scale_stride = e.down_scale_stride;
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
      const int skipped = min(tile * kTileRows, owned - 1);
      const int rows = row_group < c.groups ? max(0, min(kTileRows, owned - tile * kTileRows)) : 0;
      aim<W>(t, tile, e.down, e.down_scales, width(c).inner, first_column + skipped, rows);
    }
    return t;
  }
  __device__ const X& x(const Chunk&, int) const {
    return a.inner_x;
  }
  __device__ int32_t count(const Chunk& c, int row_group) const {
    return group_of(c, row_group).rows;
  }
  __device__ auto row_of(const Chunk& c, int row_group) const {
    return [entries = a.groups.entry + group_of(c, row_group).first](int column) { return entries[column]; };
  }
  template <class Sum>
  __device__ void store(const Chunk& c, int row_group, int, Sum sum, int thread, int threads) const {
    const Group& group = group_of(c, row_group);
    const int row = thread % 32;
    if (row >= owned || row_group >= c.groups) return;
#pragma unroll 1
    for (int column = thread / 32; column < group.rows; column += threads / 32) {
      y[a.groups.entry[group.first + column] * kOwned + row] = sum(row, column);
    }
  }
  __device__ int32_t claim() const {
    return 0;
  }
  __device__ void publish(const Chunk&, int32_t) const {}
  __device__ void wait() const {
    wait_for_previous();
  }

  // All threads, after all groups.
  __device__ void combine() const {
    __syncthreads();
    const int row = static_cast<int>(threadIdx.x) % kOwned;
    if (row >= owned) return;
    const int32_t shared = a.tokens * a.chosen;  // first entry of the shared expert
#pragma unroll 1
    for (int t = static_cast<int>(threadIdx.x) / kOwned; t < a.tokens; t += skinny::kThreads / kOwned) {
      const int32_t* ids = a.ids(t);
      const float* weights = a.weights(t);
      float sum = 0;
#pragma unroll 4
      for (int32_t c = 0; c < a.chosen; ++c) {
        const int32_t local = ids[c] - a.first_expert;
        if (local >= 0 && local < a.held) {
          sum = fmaf(weights[c], y[(t * a.chosen + c) * kOwned + row], sum);
        }
      }
      if (a.shared_width.inner > 0) sum += y[(shared + t) * kOwned + row];
      a.out(t)[first_column + row] = sum;
    }
  }
};

template <class W, int kRowTiles, int kTiles>
__global__ void __launch_bounds__(skinny::kThreads, kTiles == 1 ? 2 : 1)
    down_kernel(const __grid_constant__ Work a) {
  let_next_start();
  constexpr size_t kRing = skinny::Form<W, kRowTiles, kTiles>::kSharedBytes / sizeof(float);
  const Down<W, kRowTiles> work(a, dynamic_shared<float>() + kRing);
  skinny::run<W, kRowTiles, kTiles>(work);
  work.combine();
}

// What a CTA keeps of each choice lies in shared memory when there is room, for two CTAs in the narrow form.
template <class W, int kRowTiles, int kTiles>
void launch_form(cudaStream_t stream, Work work) {
  static const bool sized = (allow_shared(down_kernel<W, kRowTiles, kTiles>), true);
  static_cast<void>(sized);
  const int64_t entries = int64_t{work.tokens} * (work.chosen + 1);
  constexpr int64_t kOwned = Down<W, kRowTiles>::kOwned;
  constexpr size_t kRoom = kTiles == 1 ? kHalfShared : kMostShared;
  const size_t ring = skinny::Form<W, kRowTiles, kTiles>::kSharedBytes;
  size_t bytes = ring + static_cast<size_t>(entries * kOwned) * sizeof(float);
  if (bytes <= kRoom) {
    work.y = nullptr;
  } else {
    bytes = ring;
  }
  if (sizeof(W) == 1) {
    const View inner{work.inner.data, DType::f32, entries, work.inner_x.codes.padded, work.inner.stride};
    quantize(stream, inner, work.inner_x.codes, nullptr);
  }
  launch_dependent(stream, "experts", blocks_for(work.columns, kOwned), skinny::kThreads, bytes,
                   down_kernel<W, kRowTiles, kTiles>, work);
}

}  // namespace

template <class W>
void launch_down(cudaStream_t stream, const Work& work) {
  if (work.tokens > kNarrowRows) return launch_form<W, 2, 4>(stream, work);
  if (sizeof(W) == 1 && fits_down_few(work)) return launch_down_few(stream, work);
  launch_form<W, 1, 1>(stream, work);
}
template void launch_down<f8_e4m3>(cudaStream_t stream, const Work& work);
template void launch_down<bf16>(cudaStream_t stream, const Work& work);

}  // namespace godwit::sm90
