// Several linear products in one launch (kernels spec §3.3): every CTA owns a run of output rows of one of
// them, and up to 8, 32 or 64 activation rows.
#include <algorithm>
#include <span>

#include "kernels/sm90/skinny/product.cuh"
#include "kernels/sm90/stream/stream.cuh"

namespace godwit::sm90 {
namespace {

using skinny::Split;
using skinny::Tiles;
using skinny::X;

struct Segment {
  X x;
  const uint8_t* w;
  const float* scales;
  Rows<float> out;
  uint32_t w_stride;  // bytes
  int32_t scale_stride;
  int32_t in, rows;     // K, and N of all heads together
  int32_t head_rows;    // N of a head; x moves on by K from head to head …
  int32_t head_bytes;   // … these bytes
  int32_t first_block;  // of the CTAs that share it, column tiles apart
  int32_t rows_of_block, chunk_rows;
  Split split;  // of K
  bool fp8;
  // Where both sides are bf16:
  stream::Split streams;  // of K
  stream::Ring ring;
};

struct Products {
  Segment segment[kMostProducts];
  int32_t count, column_tiles;
  int32_t rows;  // of activations
};

template <class W, int kRowTiles>
struct LinearWork {
  const Segment& p;
  int32_t columns_here;  // activation rows of this CTA
  int64_t first_column;
  int32_t begin, end;  // output rows

  static constexpr int kGroupRows = kRowTiles * skinny::kTileRows;

  struct Chunk {
    int32_t row, rows;
    bool valid;
  };
  __device__ Chunk at(int32_t row) const { return {row, min(p.chunk_rows, end - row), row < end}; }
  __device__ Chunk first() const { return at(begin); }
  __device__ void next(Chunk& c) const { c = at(c.row + c.rows); }
  __device__ Split split(const Chunk&) const { return p.split; }
  // Rows of a row group: equal shares, whole eights; with heads, whole tiles, which no head ends within.
  __device__ int share(const Chunk& c) const {
    if (p.head_rows < p.rows) return kGroupRows;
    const int each = (c.rows + p.split.row_groups() - 1) >> p.split.log_row_groups();
    return min(kGroupRows, (each + 7) / 8 * 8);
  }
  // The rows of `group`, which may have none.
  __device__ int first_row(const Chunk& c, int group) const {
    return c.row + min(group * share(c), c.rows - 1);
  }
  __device__ int rows_of(const Chunk& c, int group) const {
    const int each = share(c);
    return max(0, min(each, c.rows - group * each));
  }
  __device__ Tiles<kRowTiles> tiles(const Chunk& c, int group) const {
    const int first = first_row(c, group), count = rows_of(c, group);
    Tiles<kRowTiles> t;
    t.stride = p.w_stride;
    t.scale_stride = p.scale_stride;
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile) {
      const int skipped = min(tile * skinny::kTileRows, max(count - 1, 0));
      t.data[tile] = p.w + int64_t{first + skipped} * p.w_stride;
      t.rows[tile] = max(0, min(count - tile * skinny::kTileRows, skinny::kTileRows));
      t.scales[tile] = p.scales;
      t.first_row[tile] = first + skipped;
    }
    return t;
  }
  __device__ X x(const Chunk& c, int group) const {
    X x = p.x;
    if (p.head_rows < p.rows) x.data += first_row(c, group) / p.head_rows * p.head_bytes;
    return x;
  }
  __device__ int32_t count(const Chunk&, int) const {
    return columns_here;
  }
  __device__ auto row_of(const Chunk&, int) const {
    return [first = static_cast<int32_t>(first_column)](int c) { return first + c; };
  }
  template <class Sum>
  __device__ void store(const Chunk& c, int group, int first, Sum sum, int thread, int threads) const {
    const int rows = min(rows_of(c, group) - first, 2 * skinny::kTileRows);
    float* out = p.out(first_column) + first_row(c, group) + first;
#pragma unroll 1
    for (int column = thread / 32; column < columns_here; column += threads / 32) {
#pragma unroll 1
      for (int row = thread % 32; row < rows; row += 32) out[column * p.out.stride + row] = sum(row, column);
    }
  }
  __device__ int32_t claim() const {
    return 0;
  }
  __device__ void publish(const Chunk&, int32_t) const {}
  __device__ void wait() const {
    wait_for_previous();
  }
};

// bf16 weights that meet bf16 rows.
struct StreamWork {
  const Segment& p;
  stream::Split split;
  stream::Ring ring;
  int64_t stride, x_stride;
  int32_t columns;  // activation rows of this CTA
  int64_t first_column;
  const uint8_t* x;
  int32_t begin, end;  // output rows

  __device__ StreamWork(const Segment& segment, int32_t columns_here, int64_t first, int32_t rows_begin,
                        int32_t rows_end)
      : p(segment),
        split(segment.streams),
        ring(segment.ring),
        stride(segment.w_stride),
        x_stride(segment.x.row_bytes),
        columns(columns_here),
        first_column(first),
        x(segment.x.data + first * segment.x.row_bytes),
        begin(rows_begin),
        end(rows_end) {}
  // A chunk lies in one head.
  __device__ stream::Chunk at(int32_t row) const {
    int32_t rows = min(p.chunk_rows, end - row), head = 0;
    if (p.head_rows < p.rows) {
      head = row / p.head_rows;
      rows = min(rows, (head + 1) * p.head_rows - row);
    }
    return {p.w + int64_t{row} * stride, x + int64_t{head} * p.head_bytes, row, rows, row < end};
  }
  __device__ stream::Chunk first() const { return at(begin); }
  __device__ void next(stream::Chunk& c) const { c = at(c.first + c.rows); }
  template <class Sum>
  __device__ void store(const stream::Chunk& c, Sum sum, int thread, int threads) const {
    float* out = p.out(first_column) + c.first;
#pragma unroll 1
    for (int column = thread / 32; column < columns; column += threads / 32) {
#pragma unroll 1
      for (int row = thread % 32; row < c.rows; row += 32)
        out[column * p.out.stride + row] = sum(row, column);
    }
  }
};

template <class W, int kRowTiles, int kTiles>
__device__ void multiply_segment(const Products& a, const Segment& p, int32_t begin, int32_t end,
                                 int32_t first) {
  const LinearWork<W, kRowTiles> work{p, min(8 * kTiles, a.rows - first), first, begin, end};
  skinny::run<W, kRowTiles, kTiles>(work);
}

// X: what bf16 weights meet. A CTA has kColumns activation rows; e4m3 weights meet at most 32. bf16 weights
// that meet f32 rows have a form of their own: one of more row tiles, so that fewer chunks read the
// activations.
template <class X, int kColumns, int kRowTiles, int kBf16RowTiles>
__global__ void __launch_bounds__(stream::kThreads, kColumns == 8 ? 2 : 1)
    products_kernel(const __grid_constant__ Products a) {
  static_assert(stream::kThreads == skinny::kThreads);
  let_next_start();
  // Column tiles of the same weights are neighbours, so that all but the first come from L2.
  const int32_t column_tile = blockIdx.x % a.column_tiles, first = column_tile * kColumns;
  const int32_t block = blockIdx.x / a.column_tiles;
  int s = 0;
  while (s + 1 < a.count && block >= a.segment[s + 1].first_block) ++s;
  const Segment& p = a.segment[s];
  const int32_t begin = (block - p.first_block) * p.rows_of_block, end = min(p.rows, begin + p.rows_of_block);
  if (p.fp8) {
    if constexpr (kColumns <= 32) multiply_segment<f8_e4m3, kRowTiles, kColumns / 8>(a, p, begin, end, first);
  } else if constexpr (std::is_same_v<X, bf16>) {
    stream::run<kColumns>(StreamWork(p, min(kColumns, a.rows - first), first, begin, end));
  } else {
    multiply_segment<bf16, kBf16RowTiles, kColumns / 8>(a, p, begin, end, first);
  }
}

template <class X, int kColumns, int kRowTiles, int kBf16RowTiles>
constexpr size_t shared_bytes() {
  size_t bytes = 0;
  if constexpr (kColumns <= 32) bytes = skinny::Form<f8_e4m3, kRowTiles, kColumns / 8>::kSharedBytes;
  if constexpr (std::is_same_v<X, bf16>) {
    return std::max<size_t>(bytes, stream::Form<kColumns>::kSharedBytes);
  } else {
    return std::max(bytes, skinny::Form<bf16, kBf16RowTiles, kColumns / 8>::kSharedBytes);
  }
}

template <class X, int kColumns, int kRowTiles, int kBf16RowTiles>
void launch(cudaStream_t stream, Products a, int32_t blocks) {
  constexpr size_t kShared = shared_bytes<X, kColumns, kRowTiles, kBf16RowTiles>();
  constexpr auto kKernel = products_kernel<X, kColumns, kRowTiles, kBf16RowTiles>;
  a.column_tiles = (a.rows + kColumns - 1) / kColumns;
  for (Segment& p : std::span(a.segment, static_cast<size_t>(a.count))) {
    if (std::is_same_v<X, bf16> && !p.fp8) p.ring = stream::ring_of<kColumns>(p.chunk_rows, p.streams.stages);
  }
  static const bool sized = [] {
    check(
        cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kShared)),
        "linear");
    return true;
  }();
  static_cast<void>(sized);
  launch_dependent(stream, "linear", blocks_for(int64_t{blocks} * a.column_tiles, 1), stream::kThreads,
                   kShared, kKernel, a);
}

// How many rows a CTA takes at once: so many tiles of 16 of each row group, or streamed ones.
struct Takes {
  int row_tiles, bf16_row_tiles;
  bool streams;  // bf16 weights meet bf16 rows
};

// Cuts the products among CTAs: equal bytes each, as few as let no CTA be left over. A head's rows are never
// parted inside a row group. Streamed rows make as many chunks for one warpgroup as for the other where each
// has its own.
int32_t share_out(Products& a, int64_t bytes, int64_t ctas, const Takes& takes) {
  const std::span segments(a.segment, static_cast<size_t>(a.count));
  const auto streams = [&](const Segment& p) { return !p.fp8 && takes.streams; };
  const auto most_of = [&](const Segment& p) {
    if (streams(p)) return int64_t{stream::kSlots} * (p.streams.halves ? 1 : 2);
    return int64_t{p.fp8 ? takes.row_tiles : takes.bf16_row_tiles} * skinny::kTileRows * p.split.row_groups();
  };
  const auto rows_of_block = [&](const Segment& p, int64_t quota) {
    int64_t each = std::max<int64_t>(1, quota / (p.in * (p.fp8 ? 1 : 2)));
    if (p.head_rows < p.rows && !streams(p)) return (each + most_of(p) - 1) / most_of(p) * most_of(p);
    const int64_t blocks = (p.rows + each - 1) / each;
    return (p.rows + blocks - 1) / blocks;
  };
  int64_t quota = (bytes + ctas - 1) / ctas;
  const auto blocks_in_all = [&] {
    int64_t blocks = 0;
    for (const Segment& p : segments) blocks += (p.rows - 1) / rows_of_block(p, quota) + 1;
    return blocks;
  };
  while (blocks_in_all() > ctas && quota < bytes) quota += quota / 64 + 1;
  int64_t first = 0;
  for (Segment& p : segments) {
    const int64_t each = rows_of_block(p, quota), most = most_of(p);
    int64_t chunks = (each + most - 1) / most;
    if (streams(p) && !p.streams.halves) chunks *= 2;
    const bool whole = p.head_rows < p.rows && !streams(p);
    p.chunk_rows = static_cast<int32_t>(whole ? most : (each + chunks - 1) / chunks);
    p.rows_of_block = static_cast<int32_t>(each);
    p.first_block = static_cast<int32_t>(first);
    first += (p.rows - 1) / each + 1;
  }
  return static_cast<int32_t>(first);
}

// Up to eight rows: two CTAs an SM, but for streamed ones; where those have one chunk of a tile, the form of
// most blocks in flight.
template <class X>
void launch_narrow(cudaStream_t stream, Products& a, int64_t bytes, int multiprocessors) {
  constexpr bool kStreams = std::is_same_v<X, bf16>;
  const int64_t ctas = kStreams ? multiprocessors : 2 * multiprocessors;
  int32_t blocks = share_out(a, bytes, ctas, {1, 1, kStreams});
  if (a.segment[0].rows_of_block <= a.segment[0].chunk_rows) return launch<X, 8, 1, 1>(stream, a, blocks);
  blocks = share_out(a, bytes, ctas, {2, 2, kStreams});
  launch<X, 8, 2, 2>(stream, a, blocks);
}

// More, against bf16 rows.
void launch_wide(cudaStream_t stream, Products& a, int64_t bytes, int multiprocessors, const bf16*) {
  const int32_t blocks = share_out(a, bytes, multiprocessors, {2, 2, true});
  const std::span segments(a.segment, static_cast<size_t>(a.count));
  if (a.rows <= 32 || std::ranges::any_of(segments, &Segment::fp8))
    return launch<bf16, 32, 2, 2>(stream, a, blocks);
  launch<bf16, 64, 2, 2>(stream, a, blocks);
}

// Against f32 rows: wide chunks where CTAs have so many rows of bf16; small ones where a head's rows would
// leave SMs idle.
void launch_wide(cudaStream_t stream, Products& a, int64_t bytes, int multiprocessors, const float*) {
  constexpr int kManyRows = 40;
  int32_t blocks = share_out(a, bytes, multiprocessors, {2, 2, false});
  if (2 * blocks < multiprocessors) {
    blocks = share_out(a, bytes, multiprocessors, {1, 1, false});
    return launch<float, 32, 1, 1>(stream, a, blocks);
  }
  bool wide = false;
  for (const Segment& p : std::span(a.segment, static_cast<size_t>(a.count))) {
    const bool heads = p.head_rows < p.rows;
    wide |= !p.fp8 && !heads && p.rows_of_block >= kManyRows << p.split.log_row_groups();
  }
  if (!wide) return launch<float, 32, 2, 2>(stream, a, blocks);
  blocks = share_out(a, bytes, multiprocessors, {2, 4, false});
  launch<float, 32, 2, 4>(stream, a, blocks);
}

}  // namespace

bool fits_skinny(const Product& p) {
  const int64_t bytes = size_of(p.w.data.dtype), heads = p.heads;
  const auto aligned = [](const void* at) { return reinterpret_cast<uintptr_t>(at) % 16 == 0; };
  if (p.w.data.dtype == DType::f32 || p.w.out() == 0) return false;
  if (p.w.in() * bytes % skinny::kBlockBytes != 0 || p.w.data.stride * bytes % 16 != 0) return false;
  if (!aligned(p.w.data.data)) return false;
  if (heads > 1 && p.w.out() / heads % (2 * skinny::kTileRows) != 0) return false;
  return p.w.data.dtype == DType::f8_e4m3 || (aligned(p.x.data) && p.x.stride * size_of(p.x.dtype) % 16 == 0);
}

void skinny_linear(cudaStream_t stream, const Product* products, int count, int multiprocessors) {
  GODWIT_ASSERT(count >= 1 && count <= kMostProducts);
  Products a{};
  a.count = count;
  a.rows = static_cast<int32_t>(products[0].x.rows);
  if (a.rows == 0) return;
  int64_t all = 0;
  const Product* half = nullptr;  // of bf16 weights; all of a launch meet activations of one type
  for (int i = 0; i < count; ++i) {
    if (products[i].w.data.dtype == DType::bf16) {
      GODWIT_ASSERT(half == nullptr || half->x.dtype == products[i].x.dtype);
      half = &products[i];
    }
    all += products[i].w.out() * products[i].w.in() * size_of(products[i].w.data.dtype);
  }
  for (int i = 0; i < count; ++i) {
    const Product& from = products[i];
    Segment& p = a.segment[i];
    p.fp8 = from.w.data.dtype == DType::f8_e4m3;
    p.x = skinny::x_of(from.x, from.codes);
    const int64_t rows = from.w.out(), row_bytes = from.w.in() * size_of(from.w.data.dtype);
    p.w = static_cast<const uint8_t*>(from.w.data.data);
    p.w_stride = static_cast<uint32_t>(from.w.data.stride * size_of(from.w.data.dtype));
    p.scales = from.w.scales;
    p.scale_stride = static_cast<int32_t>(from.w.scale_stride);
    p.out = rows_of<float>(from.out);
    p.in = static_cast<int32_t>(from.w.in());
    p.rows = static_cast<int32_t>(rows);
    p.head_rows = static_cast<int32_t>(rows / from.heads);
    p.head_bytes = static_cast<int32_t>(from.w.in() * size_of(from.x.dtype));
    p.split = skinny::split_of(row_bytes / skinny::kBlockBytes);
    p.streams = stream::split_of(row_bytes / stream::kBlockBytes);
  }
  const auto launch_for = [&]<class X>(const X* kind) {
    a.rows <= 8 ? launch_narrow<X>(stream, a, all, multiprocessors)
                : launch_wide(stream, a, all, multiprocessors, kind);
  };
  if (half != nullptr && half->x.dtype == DType::bf16) {
    launch_for(static_cast<const bf16*>(nullptr));
  } else {
    launch_for(static_cast<const float*>(nullptr));
  }
}

}  // namespace godwit::sm90
