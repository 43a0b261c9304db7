// Several linear products in one launch (kernels spec §3.3): every CTA owns a run of output rows of one of
// them, and 8, 16, 32 or 64 activation rows.
#include <algorithm>

#include "kernels/sm90/skinny/product.cuh"

namespace godwit::sm90 {
namespace {

using skinny::Columns;
using skinny::Split;
using skinny::Tiles;
using skinny::X;

struct Segment {
  X x;
  const void* w;
  int64_t w_stride;
  const float* scales;
  int64_t scale_stride;
  Rows<float> out;
  int64_t in, rows;     // K, and N of all heads together
  int64_t head_rows;    // N of a head; x moves on by K from head to head
  int32_t first_block;  // of the CTAs that share it, column tiles apart
  int32_t rows_of_block;
  Split split;  // of K
  bool fp8;
};

struct Products {
  Segment segment[kMostProducts];
  int32_t count, column_tiles;
  int64_t rows;  // of activations
};

template <class W, int kTiles>
struct LinearWork {
  const Segment& p;
  int64_t first_column, all_columns;
  int64_t begin, end;  // output rows

  __device__ Split split(int) const { return p.split; }
  __device__ int log_chunk_rows() const { return p.split.log_row_groups() + skinny::kLogTileRows; }
  __device__ int chunk_rows() const { return 1 << log_chunk_rows(); }
  __device__ int chunks() const {
    return static_cast<int>((end - begin + chunk_rows() - 1) >> log_chunk_rows());
  }
  __device__ int64_t first_row(int chunk) const { return begin + int64_t{chunk} * chunk_rows(); }
  __device__ int rows_of(int chunk) const {
    return static_cast<int>(min(int64_t{chunk_rows()}, end - first_row(chunk)));
  }
  // Rows of a row group: equal shares, whole eights; with heads, whole tiles, which no head ends within.
  __device__ int share(int chunk) const {
    if (p.head_rows < p.rows) return skinny::kTileRows;
    const int each = (rows_of(chunk) + p.split.row_groups() - 1) >> p.split.log_row_groups();
    return min(skinny::kTileRows, (each + 7) / 8 * 8);
  }
  __device__ Tiles<W> tiles(int chunk, int group) const {
    const int each = share(chunk);
    const int64_t row = first_row(chunk) + int64_t{group} * each;
    const int count = max(0, min(each, rows_of(chunk) - group * each));
    const W* data = static_cast<const W*>(p.w) + row * p.w_stride;
    Tiles<W> t;
    t.data[0] = data, t.data[1] = data + 16 * p.w_stride;
    t.rows[0] = min(count, 16), t.rows[1] = max(0, count - 16);
    t.stride = p.w_stride;
    t.scales[0] = t.scales[1] = p.scales;
    t.scale_stride = p.scale_stride;
    t.first_row[0] = row, t.first_row[1] = row + 16;
    return t;
  }
  __device__ X x(int chunk, int group) const {
    X x = p.x;
    if (p.head_rows < p.rows) {
      const int64_t row = min(first_row(chunk) + int64_t{group} * share(chunk), p.rows - 1);
      x.data += row / p.head_rows * p.in;
    }
    return x;
  }
  __device__ int columns_here() const {
    return static_cast<int>(min(int64_t{8 * kTiles}, all_columns - first_column));
  }
  template <int kSame>
  __device__ Columns<kSame> columns(int) const {
    return {columns_here(), [this](int c) { return static_cast<int32_t>(first_column + c); }};
  }
  template <class Sum>
  __device__ void store(int chunk, int group, Sum sum, int thread, int threads) const {
    const int each = share(chunk), rows = max(0, min(each, rows_of(chunk) - group * each));
    const int64_t first = first_row(chunk) + int64_t{group} * each;
    const int row = thread % 32;
    if (row >= rows) return;
    for (int column = thread / 32; column < columns_here(); column += threads / 32)
      p.out(first_column + column)[first + row] = sum(row, column);
  }
};

template <class W, int kTiles>
__device__ void multiply_segment(const Products& a, const Segment& p, int64_t block, int64_t column_tile) {
  const int64_t begin = block * p.rows_of_block;
  const LinearWork<W, kTiles> work{p, column_tile * 8 * kTiles, a.rows, begin,
                                   min(p.rows, begin + p.rows_of_block)};
  skinny::run<W, kTiles>(work, true);
}

template <int kTiles>
__global__ void __launch_bounds__(skinny::kThreads, kTiles == 1 ? 2 : 1)
    products_kernel(const __grid_constant__ Products a) {
  let_next_start();
  // Column tiles of the same weights are neighbours, so that all but the first come from L2.
  const int32_t column_tile = blockIdx.x % a.column_tiles;
  const int32_t block = blockIdx.x / a.column_tiles;
  int s = 0;
  while (s + 1 < a.count && block >= a.segment[s + 1].first_block) ++s;
  const Segment& p = a.segment[s];
  if (p.fp8) {
    multiply_segment<f8_e4m3, kTiles>(a, p, block - p.first_block, column_tile);
  } else {
    multiply_segment<bf16, kTiles>(a, p, block - p.first_block, column_tile);
  }
}

template <int kTiles>
void launch(cudaStream_t stream, Products a, int32_t blocks) {
  a.column_tiles = static_cast<int32_t>((a.rows + 8 * kTiles - 1) / (8 * kTiles));
  static const bool sized = [] {
    check(cudaFuncSetAttribute(products_kernel<kTiles>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(skinny::shared_bytes(kTiles))),
          "linear");
    return true;
  }();
  static_cast<void>(sized);
  launch_dependent(stream, "linear", blocks_for(int64_t{blocks} * a.column_tiles, 1), skinny::kThreads,
                   skinny::shared_bytes(kTiles), products_kernel<kTiles>, a);
}

}  // namespace

bool fits_skinny(const Product& p) {
  const int64_t bytes = size_of(p.w.data.dtype), heads = p.heads;
  const auto aligned = [](const void* at) { return reinterpret_cast<uintptr_t>(at) % 16 == 0; };
  if (p.w.data.dtype == DType::f32 || p.w.out() == 0) return false;
  if (p.w.in() * bytes % skinny::kBlockBytes != 0 || p.w.data.stride * bytes % 16 != 0) return false;
  if (!aligned(p.w.data.data)) return false;
  if (heads > 1 && p.w.out() / heads % skinny::kTileRows != 0) return false;
  return p.w.data.dtype == DType::f8_e4m3 || (aligned(p.x.data) && p.x.stride % 4 == 0);
}

void skinny_linear(cudaStream_t stream, const Product* products, int count, int multiprocessors) {
  GODWIT_ASSERT(count >= 1 && count <= kMostProducts);
  Products a{};
  a.count = count;
  a.rows = products[0].x.rows;
  if (a.rows == 0) return;
  int64_t all = 0;
  for (int i = 0; i < count; ++i)
    all += products[i].w.out() * products[i].w.in() * size_of(products[i].w.data.dtype);
  int32_t blocks = 0;
  for (int i = 0; i < count; ++i) {
    const Product& from = products[i];
    Segment& p = a.segment[i];
    p.fp8 = from.w.data.dtype == DType::f8_e4m3;
    p.x = {static_cast<const float*>(from.x.data), from.x.stride, from.codes};
    p.w = from.w.data.data;
    p.w_stride = from.w.data.stride;
    p.scales = from.w.scales;
    p.scale_stride = from.w.scale_stride;
    p.out = rows_of<float>(from.out);
    p.in = from.w.in();
    p.rows = from.w.out();
    p.head_rows = p.rows / from.heads;
    p.split = skinny::split_of(p.in * size_of(from.w.data.dtype) / skinny::kBlockBytes);
    p.first_block = blocks;
    // A share of the chip by bytes. A head's rows are never parted inside a tile pair.
    const int64_t bytes = p.rows * p.in * size_of(from.w.data.dtype);
    const int64_t share = std::max<int64_t>(1, (bytes * multiprocessors + all - 1) / all);
    int64_t each = (p.rows + share - 1) / share;
    if (from.heads > 1) {
      const int64_t whole = int64_t{skinny::kTileRows} * p.split.row_groups();
      each = (each + whole - 1) / whole * whole;
    }
    p.rows_of_block = static_cast<int32_t>(each);
    blocks += static_cast<int32_t>((p.rows + each - 1) / each);
  }
  if (a.rows <= 8) return launch<1>(stream, a, blocks);
  if (a.rows <= 16) return launch<2>(stream, a, blocks);
  if (a.rows <= 32) return launch<4>(stream, a, blocks);
  launch<8>(stream, a, blocks);
}

}  // namespace godwit::sm90
