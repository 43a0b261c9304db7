// Routed and shared experts, decode form (kernels spec §3.8): every expert's weights are read once for all
// rows that chose it. One launch multiplies gate and up and applies SwiGLU, one multiplies down; the results
// of each choice are then added in ascending expert id, the shared expert last, as in the plain form.
#include <algorithm>

#include "kernels/sm90/moe/groups.cuh"
#include "kernels/sm90/skinny/product.cuh"

namespace godwit::sm90 {
void plan_groups(cudaStream_t stream, const kernels::Experts& a, bool shared, int32_t width,
                 const Groups& to);  // plan.cu

namespace {

using kernels::ExpertWeights;
using skinny::Columns;
using skinny::Split;
using skinny::Tiles;
using skinny::X;

// One of the two products, of experts of one width.
struct Part {
  Split split;         // of K
  int32_t group_rows;  // output rows that a row group takes at once
  int32_t runs;        // of output rows; a task is one of a group
  __host__ __device__ int run_rows() const { return split.row_groups() * group_rows; }
};

struct Work {
  Groups groups;
  const ExpertWeights* experts;
  ExpertWeights shared;
  X x;                // rows of the first product
  Rows<float> inner;  // [T (k + 1), I] by entry
  X inner_x;          // the same as rows of the second
  Rows<float> y;      // [T (k + 1), D] by entry
  int64_t width;      // D
  int64_t inner_width, shared_width;
  float limit;
  Part up[2], down[2];  // of routed experts, of the shared one
};

// What both products share: tasks are (group, run of output rows), runs fastest.
template <class W, bool kUp>
struct Tasks {
  const Work& a;
  const Part& routed;
  const Part& shared;
  int64_t begin, end;
  int64_t routed_tasks;

  __device__ explicit Tasks(const Work& work)
      : a(work), routed(kUp ? work.up[0] : work.down[0]), shared(kUp ? work.up[1] : work.down[1]) {
    routed_tasks = int64_t{a.groups.count[0]} * routed.runs;
    const int64_t tasks = routed_tasks + int64_t{a.groups.count[1]} * shared.runs;
    begin = tasks * blockIdx.x / gridDim.x;
    end = tasks * (blockIdx.x + 1) / gridDim.x;
  }

  struct Task {
    Part part;
    Group group;
    int64_t inner, first;  // first output row
  };
  __device__ bool is_shared(int chunk) const { return begin + chunk >= routed_tasks; }
  __device__ const Part& part(int chunk) const { return is_shared(chunk) ? shared : routed; }
  __device__ Task task(int chunk) const {
    Task t;
    t.part = part(chunk);
    const int64_t i = begin + chunk;
    // Tasks of a launch fit 32 bits, whose division is the shorter one.
    const auto at = static_cast<uint32_t>(is_shared(chunk) ? i - routed_tasks : i);
    const auto runs = static_cast<uint32_t>(t.part.runs);
    const uint32_t group = at / runs;
    t.group = a.groups.group[(is_shared(chunk) ? a.groups.count[0] : 0) + group];
    t.inner = is_shared(chunk) ? a.shared_width : a.inner_width;
    t.first = int64_t{at - group * runs} * t.part.run_rows();
    return t;
  }
  __device__ int chunks() const { return static_cast<int>(end - begin); }
  __device__ Split split(int chunk) const { return part(chunk).split; }
  // Output rows of a row group that exist.
  __device__ static int rows_at(const Task& t, int64_t first, int64_t all) {
    return static_cast<int>(max(int64_t{0}, min(int64_t{t.part.group_rows}, all - first)));
  }
  __device__ Tiles<W> tiles(int chunk, int row_group) const {
    const Task t = task(chunk);
    const ExpertWeights& e = t.group.expert < 0 ? a.shared : a.experts[t.group.expert];
    const int64_t first = t.first + row_group * t.part.group_rows;
    Tiles<W> tiles;
    if constexpr (kUp) {
      const int count = rows_at(t, first, t.inner);
      set(tiles, 0, e.gate, first, count);
      set(tiles, 1, e.up, first, count);
    } else {
      const int count = rows_at(t, first, a.width);
      set(tiles, 0, e.down, first, min(count, 16));
      set(tiles, 1, e.down, first + 16, max(0, count - 16));
    }
    return tiles;
  }
  __device__ static void set(Tiles<W>& tiles, int tile, const Weight& w, int64_t first, int rows) {
    tiles.data[tile] = static_cast<const W*>(w.data.data) + first * w.data.stride;
    tiles.rows[tile] = rows;
    tiles.stride = w.data.stride;
    tiles.scales[tile] = w.scales;
    tiles.scale_stride = w.scale_stride;
    tiles.first_row[tile] = first;
  }
  __device__ X x(int, int) const { return kUp ? a.x : a.inner_x; }
  template <int kTiles>
  __device__ Columns<kTiles> columns(int chunk) const {
    const Group group = task(chunk).group;
    const int32_t* rows = (kUp ? a.groups.token : a.groups.entry) + group.first;
    return {group.rows, [rows](int c) { return rows[c]; }};
  }
  template <class Sum>
  __device__ void store(int chunk, int row_group, Sum sum, int thread, int threads) const {
    const Task t = task(chunk);
    const int64_t first = t.first + row_group * t.part.group_rows;
    const int row = thread % 32;
    if (row >= rows_at(t, first, kUp ? t.inner : a.width)) return;
    for (int column = thread / 32; column < t.group.rows; column += threads / 32) {
      const int32_t entry = a.groups.entry[t.group.first + column];
      if constexpr (kUp) {
        a.inner(entry)[first + row] = clamped_swiglu(sum(row, column), sum(16 + row, column), a.limit);
      } else {
        a.y(entry)[first + row] = sum(row, column);
      }
    }
  }
};

template <class W, bool kUp, int kTiles>
__global__ void __launch_bounds__(skinny::kThreads, kTiles == 1 ? 2 : 1)
    grouped_kernel(const __grid_constant__ Work a) {
  let_next_start();
  wait_for_previous();  // the groups themselves come from a kernel before
  const Tasks<W, kUp> tasks(a);
  skinny::run<W, kTiles>(tasks, false);
}

struct Combine {
  Rows<const int32_t> ids;    // [T, k]
  Rows<const float> weights;  // [T, k]
  Rows<const float> y;        // [T (k + 1), D]
  int32_t first, held, chosen;
  int64_t rows, width;
  bool shared;
  Rows<float> out;  // [T, D]
};

constexpr int kCombineThreads = 256;

__global__ void __launch_bounds__(kCombineThreads) combine_kernel(Combine a) {
  let_next_start();
  wait_for_previous();
  const int64_t i = int64_t{blockIdx.x} * kCombineThreads + threadIdx.x;
  if (i >= a.rows * a.width) return;
  const int64_t t = i / a.width, n = i % a.width;
  float sum = 0;
  for (int32_t c = 0; c < a.chosen; ++c) {
    const int32_t local = a.ids(t)[c] - a.first;
    if (local >= 0 && local < a.held) sum = fmaf(a.weights(t)[c], a.y(t * a.chosen + c)[n], sum);
  }
  if (a.shared) sum += a.y(a.rows * a.chosen + t)[n];
  a.out(t)[n] = sum;
}

template <class W, bool kUp, int kTiles>
void launch_product(cudaStream_t stream, const Work& a, int multiprocessors) {
  static const bool sized = [] {
    check(cudaFuncSetAttribute(grouped_kernel<W, kUp, kTiles>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(skinny::shared_bytes(kTiles))),
          "experts");
    return true;
  }();
  static_cast<void>(sized);
  const unsigned blocks = static_cast<unsigned>(kTiles == 1 ? 2 * multiprocessors : multiprocessors);
  launch_dependent(stream, "experts", blocks, skinny::kThreads, skinny::shared_bytes(kTiles),
                   grouped_kernel<W, kUp, kTiles>, a);
}

template <class W, int kTiles>
void launch(cudaStream_t stream, const kernels::Experts& a, bool shared, const View& out, const Work& work,
            int multiprocessors) {
  plan_groups(stream, a, shared, 8 * kTiles, work.groups);
  if (sizeof(W) == 1) quantize(stream, a.x, work.x.codes, nullptr);
  launch_product<W, true, kTiles>(stream, work, multiprocessors);
  const int64_t entries = a.x.rows * (a.ids.cols + (shared ? 1 : 0));
  if (sizeof(W) == 1) {
    const int64_t columns = work.inner_x.codes.padded;
    const View inner{work.inner.data, DType::f32, entries, columns, work.inner.stride};
    quantize(stream, inner, work.inner_x.codes, nullptr);
  }
  launch_product<W, false, kTiles>(stream, work, multiprocessors);
  const Combine c{rows_of<const int32_t>(a.ids),
                  rows_of<const float>(a.weights),
                  {work.y.data, work.y.stride},
                  a.first_expert,
                  a.expert_count,
                  static_cast<int32_t>(a.ids.cols),
                  a.x.rows,
                  a.x.cols,
                  shared,
                  rows_of<float>(out)};
  launch_dependent(stream, "experts", blocks_for(c.rows * c.width, kCombineThreads), kCombineThreads, 0,
                   combine_kernel, c);
}

}  // namespace

bool fits_grouped(const kernels::Experts& a, int64_t inner) {
  const int64_t bytes = size_of(a.dtype);
  if (a.dtype == DType::f32 || a.expert_count == 0) return false;
  if (a.x.cols * bytes % skinny::kBlockBytes != 0 || inner * bytes % skinny::kBlockBytes != 0) return false;
  return a.dtype == DType::f8_e4m3 ||
         (reinterpret_cast<uintptr_t>(a.x.data) % 16 == 0 && a.x.stride % 4 == 0);
}

void grouped_experts(cudaStream_t stream, const kernels::Experts& a, const kernels::Ffn* shared,
                     const View& out, const GroupedScratch& scratch, int multiprocessors) {
  const int64_t rows = a.x.rows, entries = rows * (a.ids.cols + 1);
  if (rows == 0) return;
  Work w{};
  w.groups.count = static_cast<int32_t*>(scratch.groups);
  w.groups.group = reinterpret_cast<Group*>(w.groups.count + 4);
  w.groups.entry = reinterpret_cast<int32_t*>(w.groups.group + most_groups(rows, a.ids.cols));
  w.groups.token = w.groups.entry + entries;
  w.experts = a.experts;
  if (shared) w.shared = {shared->gate, shared->up, shared->down};
  w.x = {static_cast<const float*>(a.x.data), a.x.stride, scratch.x};
  w.inner = {scratch.inner, scratch.inner_stride};
  w.inner_x = {scratch.inner, scratch.inner_stride, scratch.inner_codes};
  w.y = {scratch.y, a.x.cols};
  w.width = a.x.cols;
  w.inner_width = scratch.inner_width;
  w.shared_width = shared ? shared->gate.out() : 0;
  w.limit = a.limit;
  // Few rows touch few experts: shorter tasks share them out evenly.
  const int32_t up_rows = rows <= 2 ? 8 : 16, down_rows = rows <= 2 ? 16 : skinny::kTileRows;
  const auto part = [&](int64_t in, int64_t out_rows, int32_t group_rows) {
    Part p{skinny::split_of(in * size_of(a.dtype) / skinny::kBlockBytes), group_rows, 0};
    p.runs = static_cast<int32_t>((out_rows + p.run_rows() - 1) / p.run_rows());
    return p;
  };
  const int64_t inner[2] = {w.inner_width, std::max<int64_t>(w.shared_width, 1)};
  for (int i = 0; i < 2; ++i) {
    w.up[i] = part(w.width, inner[i], up_rows);
    w.down[i] = part(inner[i], w.width, down_rows);
  }
  const auto with_rows = [&](auto element) {
    using W = decltype(element);
    if (rows <= 64) return launch<W, 1>(stream, a, shared != nullptr, out, w, multiprocessors);
    launch<W, 4>(stream, a, shared != nullptr, out, w, multiprocessors);
  };
  if (a.dtype == DType::f8_e4m3) return with_rows(f8_e4m3{});
  with_rows(bf16{});
}

int64_t group_bytes(int64_t rows, int64_t chosen) {
  return 4 * int64_t{sizeof(int32_t)} + most_groups(rows, chosen) * int64_t{sizeof(Group)} +
         2 * rows * (chosen + 1) * int64_t{sizeof(int32_t)};
}

}  // namespace godwit::sm90
