// latent_write and index_write (glm5_next spec §9.1, §10.2), and both with the norms before them: one warp a
// row and group of 128 values. Pools read tokens of this step from the rows and older ones from the ring,
// before the ring moves on.
#include "kernels/sm90/device/pipeline.cuh"
#include "kernels/sm90/dsa/coded.cuh"
#include "kernels/sm90/dsa/paged.cuh"
#include "kernels/sm90/launches.h"

namespace godwit::sm90 {
namespace {

using kernels::Sequence;

constexpr int kWarps = 4, kThreads = 32 * kWarps;

// Warp of the grid.
__device__ int64_t task() {
  return int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
}

// The part of a row that a warp has, four values a lane. kWhole: rows are whole, aligned fours.
template <bool kWhole>
struct Group {
  int first, length;  // values
  __device__ Group(int64_t group, int64_t width) {
    constexpr int kMost = static_cast<int>(kFp8Block);
    first = static_cast<int>(group) * kMost;
    length = min(kMost, static_cast<int>(width) - first);
  }
  __device__ int at(int j) const { return 4 * static_cast<int>(threadIdx.x % 32) + j; }
  __device__ bool has(int j) const { return at(j) < length; }
  // Of a row; zeros past the group's end.
  __device__ void load(float (&x)[4], const float* row) const {
    if constexpr (kWhole) {
      float4 v = {0, 0, 0, 0};
      if (has(0)) v = *reinterpret_cast<const float4*>(row + first + at(0));
      x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
    } else {
      for (int j = 0; j < 4; ++j) x[j] = has(j) ? row[first + at(j)] : 0.0f;
    }
  }
  __device__ void store(float* row, const float (&x)[4]) const {
    if constexpr (kWhole) {
      if (has(0)) *reinterpret_cast<float4*>(row + first + at(0)) = {x[0], x[1], x[2], x[3]};
    } else {
      for (int j = 0; j < 4; ++j) {
        if (has(j)) row[first + at(j)] = x[j];
      }
    }
  }
  // A part of a row of the cache, divided by `scale` already when the format has scales.
  __device__ void store(DType format, std::byte* row, float* scales, const float (&x)[4], float scale) const {
    if (format == DType::f8_e4m3) {
      uint32_t codes = 0;
      for (int j = 0; j < 4; ++j) codes |= uint32_t{code_of(x[j])} << 8 * j;
      if constexpr (kWhole) {
        if (has(0)) *reinterpret_cast<uint32_t*>(row + first + at(0)) = codes;
      } else {
        for (int j = 0; j < 4; ++j) {
          if (has(j)) reinterpret_cast<uint8_t*>(row)[first + at(j)] = static_cast<uint8_t>(codes >> 8 * j);
        }
      }
      if (threadIdx.x % 32 == 0) scales[first / static_cast<int>(kFp8Block)] = scale;
      return;
    }
    for (int j = 0; j < 4; ++j) {
      if (has(j)) sm90::store(row, format, first + at(j), x[j]);
    }
  }
};

template <class G>
__device__ void write_latent(const StepView& step, const kernels::DsaCache& cache, const G& g, int64_t t,
                             int64_t width, float (&x)[4]) {
  const Sequence& s = step.sequence[step.row_sequence[t]];
  std::byte* row = Cached(step, cache, s).latent(position_of(s, t), width);
  const float scale = cache.latent_dtype == DType::f8_e4m3 ? scale_latent(x) : 0.0f;
  g.store(cache.latent_dtype, row, reinterpret_cast<float*>(row + kernels::padded_codes(width)), x, scale);
}

struct IndexRows {
  Rows<float> key;         // [T, width]
  Rows<const float> gate;  // [T, width]
  const float* ape;        // [P, width]
  int32_t pool;            // P
  int64_t width;
  kernels::DsaCache cache;
};

// The pool that row t completes, if it does.
template <class G>
__device__ void write_pool(const StepView& step, const IndexRows& a, const G& g, int64_t t) {
  const Sequence& s = step.sequence[step.row_sequence[t]];
  const int64_t end = position_of(s, t) + 1;
  if ((end & (a.pool - 1)) != 0) return;
  const Cached cached(step, a.cache, s);
  // The tokens of a pool lie side by side in the ring, whose length is a multiple of P.
  const float* const ring = cached.ring(end - a.pool, a.width);
  const auto old = static_cast<int32_t>(s.first - (end - a.pool));  // how many come from there
  const int64_t row = t + 1 - a.pool;                               // of the first, if it is of this step
  const auto load_logits = [&](int32_t k, float(&x)[4]) {
    float ape[4];
    g.load(x, k < old ? ring + (2 * k + 1) * a.width : a.gate(row + k));
    g.load(ape, a.ape + k * a.width);
    for (int j = 0; j < 4; ++j) x[j] += ape[j];
  };
  constexpr int kAtOnce = 4;  // tokens whose loads are under way together
  float largest[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY}, total[4] = {}, x[4] = {};
#pragma unroll 1
  for (int32_t first = 0; first < a.pool; first += kAtOnce) {
    float logit[kAtOnce][4];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) load_logits(min(first + i, a.pool - 1), logit[i]);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      for (int j = 0; j < 4; ++j) largest[j] = fmaxf(largest[j], logit[i][j]);
    }
  }
#pragma unroll 1
  for (int32_t first = 0; first < a.pool; first += kAtOnce) {
    float logit[kAtOnce][4], key[kAtOnce][4];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int32_t k = min(first + i, a.pool - 1);
      load_logits(k, logit[i]);
      g.load(key[i], k < old ? ring + 2 * k * a.width : a.key(row + k));
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i >= a.pool) break;
      for (int j = 0; j < 4; ++j) {
        const float p = expf(logit[i][j] - largest[j]);
        total[j] += p;
        x[j] = fmaf(p, key[i][j], x[j]);
      }
    }
  }
  for (int j = 0; j < 4; ++j) x[j] /= total[j];
  const float scale = a.cache.pooled_dtype == DType::f8_e4m3 ? turn_and_scale(x, g.length) : 0.0f;
  const int64_t p = (end >> (__ffs(a.pool) - 1)) - 1;
  g.store(a.cache.pooled_dtype, cached.key(p, a.pool, a.width), cached.key_scales(p, a.pool, a.width), x,
          scale);
}

// Of a long sequence only the last ring_length rows are kept, each in a place of its own.
template <class G>
__device__ void write_ring(const StepView& step, const IndexRows& a, const G& g, int64_t t) {
  const Sequence& s = step.sequence[step.row_sequence[t]];
  if (t - s.row < s.rows - a.cache.ring_length) return;
  float* const to = Cached(step, a.cache, s).ring(position_of(s, t), a.width);
  float key[4], gate[4];
  g.load(key, a.key(t));
  g.load(gate, a.gate(t));
  g.store(to, key);
  g.store(to + a.width, gate);
}

// Of a sequence with few rows: pools first, for they read what the ring loses.
template <class G>
__device__ void write_sequence(const StepView& step, const IndexRows& a, const G& g, const Sequence& s) {
#pragma unroll 1
  for (int64_t t = s.row; t < s.row + s.rows; ++t) write_pool(step, a, g, t);
#pragma unroll 1
  for (int64_t t = s.row; t < s.row + s.rows; ++t) write_ring(step, a, g, t);
}

__global__ void __launch_bounds__(kThreads)
    latent_kernel(StepView step, Rows<const float> latent, int64_t width, kernels::DsaCache cache) {
  begin_dependent();
  const int64_t groups = kernels::fp8_groups(width), t = task() / groups;
  if (t >= step.rows) return;
  const Group<false> g(task() % groups, width);
  float x[4];
  g.load(x, latent(t));
  write_latent(step, cache, g, t, width, x);
}

__global__ void __launch_bounds__(kThreads) sequence_kernel(StepView step, IndexRows a) {
  begin_dependent();
  const int64_t groups = kernels::fp8_groups(a.width), i = task() / groups;
  if (i < step.decode_sequences)
    write_sequence(step, a, Group<false>(task() % groups, a.width), step.sequence[i]);
}

// Rows of the prompt sequences, which are many.
template <bool kRing>
__global__ void __launch_bounds__(kThreads) prompt_kernel(StepView step, IndexRows a) {
  begin_dependent();
  const int64_t groups = kernels::fp8_groups(a.width), t = step.decode_rows + task() / groups;
  if (t >= step.rows) return;
  const Group<false> g(task() % groups, a.width);
  if (kRing) {
    write_ring(step, a, g, t);
  } else {
    write_pool(step, a, g, t);
  }
}

void write_prompt_index(cudaStream_t stream, const StepView& step, const IndexRows& rows) {
  const int64_t warps = (step.rows - step.decode_rows) * kernels::fp8_groups(rows.width);
  if (warps == 0) return;
  launch_dependent(stream, "index_write", blocks_for(warps, kWarps), kThreads, 0, prompt_kernel<false>, step,
                   rows);
  launch_dependent(stream, "index_write", blocks_for(warps, kWarps), kThreads, 0, prompt_kernel<true>, step,
                   rows);
}

constexpr int kFrontThreads = 256, kFrontWarps = kFrontThreads / 32;

struct Front {
  Rows<float> query, latent;  // [T, width]
  int64_t query_width, latent_width;
  const float *query_norm, *latent_norm;
  float eps;
  IndexRows index;
  const float *key_norm, *key_bias;
  float key_eps;
  int32_t index_blocks;
};

// LayerNorm of the index key of row t in place; a lane reads and writes the values that are its own in the
// pool and the ring, too.
__device__ void norm_key(const Front& a, const Group<true>& g, int64_t t) {
  float x[4], weight[4], bias[4];
  g.load(x, a.index.key(t));
  g.load(weight, a.key_norm);
  g.load(bias, a.key_bias);
  const auto width = static_cast<float>(a.index.width);
  const float mean = warp_sum((x[0] + x[1]) + (x[2] + x[3])) / width;
  float squares = 0;
  for (int j = 0; j < 4; ++j) {
    x[j] = g.has(j) ? x[j] - mean : 0.0f;
    squares = fmaf(x[j], x[j], squares);
  }
  const float scale = 1.0f / sqrtf(warp_sum(squares) / width + a.key_eps);
  for (int j = 0; j < 4; ++j) x[j] = fmaf(x[j] * scale, weight[j], bias[j]);
  g.store(a.index.key(t), x);
}

// Blocks: index rows, a warp a sequence of the decode family or a row of a prompt; then query latents, then
// latents, a block a row.
__global__ void __launch_bounds__(kFrontThreads)
    front_kernel(StepView step, const __grid_constant__ Front a) {
  begin_dependent();
  const int warp = threadIdx.x / 32;
  if (static_cast<int>(blockIdx.x) < a.index_blocks) {
    const int i = static_cast<int>(blockIdx.x) * kFrontWarps + warp;
    const Group<true> g(0, a.index.width);
    const bool decodes = i < step.decode_sequences;
    const int row = decodes ? step.sequence[i].row : i - step.decode_sequences + step.decode_rows;
    const int end = decodes ? row + step.sequence[i].rows : min(row + 1, step.rows);
#pragma unroll 1
    for (int t = row; t < end; ++t) norm_key(a, g, t);
    if (decodes) write_sequence(step, a.index, g, step.sequence[i]);
    return;
  }
  const int row = static_cast<int>(blockIdx.x) - a.index_blocks;
  const bool of_query = row < step.rows;
  const int64_t t = of_query ? row : row - step.rows;
  const auto width = static_cast<int>(of_query ? a.query_width : a.latent_width);
  float* const x = of_query ? a.query(t) : a.latent(t);
  const float* const weight = of_query ? a.query_norm : a.latent_norm;
  float squares = 0;
#pragma unroll 4
  for (int c = threadIdx.x; c < width; c += kFrontThreads) squares = fmaf(x[c], x[c], squares);
  const float scale = 1.0f / sqrtf(block_sum<kFrontThreads>(squares) / static_cast<float>(width) + a.eps);
  if (of_query) {
#pragma unroll 4
    for (int c = threadIdx.x; c < width; c += kFrontThreads) x[c] = x[c] * scale * weight[c];
    return;
  }
#pragma unroll 1
  for (int group = warp; group < kernels::fp8_groups(width); group += kFrontWarps) {
    const Group<true> g(group, width);
    float part[4], its_weight[4];
    g.load(part, x);
    g.load(its_weight, weight);
    for (int j = 0; j < 4; ++j) part[j] = part[j] * scale * its_weight[j];
    write_latent(step, a.index.cache, g, t, width, part);
  }
}

}  // namespace

void latent_write(cudaStream_t stream, const StepView& step, const kernels::LatentWrite& a) {
  if (step.rows == 0) return;
  launch_dependent(stream, "latent_write", blocks_for(step.rows * kernels::fp8_groups(a.latent.cols), kWarps),
                   kThreads, 0, latent_kernel, step, rows_of<const float>(a.latent), a.latent.cols, a.cache);
}

void index_write(cudaStream_t stream, const StepView& step, const kernels::IndexWrite& a) {
  const IndexRows rows{
      rows_of<float>(a.key), rows_of<const float>(a.gate), a.ape, a.pool, a.key.cols, a.cache};
  const int64_t warps = step.decode_sequences * kernels::fp8_groups(rows.width);
  if (warps > 0)
    launch_dependent(stream, "index_write", blocks_for(warps, kWarps), kThreads, 0, sequence_kernel, step,
                     rows);
  write_prompt_index(stream, step, rows);
}

bool fits_dsa_front(const kernels::DsaProject& a) {
  const auto fours = [](const void* p, int64_t width, int64_t stride) {
    return reinterpret_cast<uintptr_t>(p) % 16 == 0 && width % 4 == 0 && stride % 4 == 0;
  };
  const auto whole = [&](const View& v) { return fours(v.data, v.cols, v.stride); };
  if (!whole(a.latent) || !fours(a.kv_a_norm, 0, 0)) return false;
  if (a.wq_b.empty()) return true;
  return whole(a.index_key) && whole(a.index_gate) && a.index_key.cols <= kFp8Block && fours(a.ape, 0, 0) &&
         fours(a.k_norm_weight, 0, 0) && fours(a.k_norm_bias, 0, 0) &&
         fours(a.cache.ring, 0, a.cache.ring_stride / 4);
}

void dsa_front(cudaStream_t stream, const StepView& step, const kernels::DsaProject& a) {
  if (step.rows == 0) return;
  const bool indexes = !a.wq_b.empty();
  const int32_t index_tasks = indexes ? step.decode_sequences + step.rows - step.decode_rows : 0;
  Front f{};
  f.query = rows_of<float>(a.q_latent);
  f.latent = rows_of<float>(a.latent);
  f.query_width = a.q_latent.cols;
  f.latent_width = a.latent.cols;
  f.query_norm = a.q_a_norm;
  f.latent_norm = a.kv_a_norm;
  f.eps = a.eps;
  f.index = {rows_of<float>(a.index_key),
             rows_of<const float>(a.index_gate),
             a.ape,
             a.pool,
             a.index_key.cols,
             a.cache};
  f.key_norm = a.k_norm_weight;
  f.key_bias = a.k_norm_bias;
  f.key_eps = a.k_norm_eps;
  f.index_blocks = (index_tasks + kFrontWarps - 1) / kFrontWarps;
  launch_dependent(stream, "dsa_project", blocks_for(f.index_blocks + 2 * int64_t{step.rows}, 1),
                   kFrontThreads, 0, front_kernel, step, f);
  if (indexes) write_prompt_index(stream, step, f.index);
}

}  // namespace godwit::sm90
