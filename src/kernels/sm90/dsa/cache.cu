// latent_write and index_write (glm5_next spec §9.1, §10.2). Pools read tokens of this step from the rows and
// older ones from the ring, before the ring moves on.
#include "kernels/sm90/device/pipeline.cuh"
#include "kernels/sm90/dsa/paged.cuh"
#include "kernels/sm90/launches.h"

namespace godwit::sm90 {
namespace {

using kernels::Sequence;

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    latent_kernel(StepView step, Rows<const float> latent, int64_t width, kernels::DsaCache cache) {
  begin_dependent();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= step.rows * width) return;
  const int64_t t = i / width, c = i % width;
  const Sequence& s = step.sequence[step.row_sequence[t]];
  const int64_t position = position_of(s, t);
  const Cached cached(step, cache, s);
  store(cached.latents(position), cache.latent_dtype, Cached::latent_at(position, width) + c, latent(t)[c]);
}

struct IndexRows {
  Rows<const float> key, gate;  // [T, width]
  const float* ape;             // [P, width]
  int32_t pool;                 // P
  int64_t width;
  kernels::DsaCache cache;
};

// Key (which = 0) or gate (1) of a position of the sequence, in this step or before it.
__device__ float entry(const IndexRows& a, const Sequence& s, const Cached& cached, int64_t position,
                       int which, int64_t c) {
  if (position < s.first) return cached.ring(position, a.width)[which * a.width + c];
  return (which == 0 ? a.key : a.gate)(s.row + (position - s.first))[c];
}

__global__ void __launch_bounds__(kThreads) pool_kernel(StepView step, IndexRows a) {
  begin_dependent();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= step.rows * a.width) return;
  const int64_t t = i / a.width, c = i % a.width;
  const Sequence& s = step.sequence[step.row_sequence[t]];
  const int64_t end = position_of(s, t) + 1;
  if (end % a.pool != 0) return;
  const Cached cached(step, a.cache, s);
  const auto logit = [&](int64_t k) {
    return entry(a, s, cached, end - a.pool + k, 1, c) + a.ape[k * a.width + c];
  };
  float largest = logit(0);
  for (int32_t k = 1; k < a.pool; ++k) largest = fmaxf(largest, logit(k));
  float total = 0, sum = 0;
  for (int32_t k = 0; k < a.pool; ++k) {
    const float p = expf(logit(k) - largest);
    total += p;
    sum = fmaf(p, entry(a, s, cached, end - a.pool + k, 0, c), sum);
  }
  const int64_t p = end / a.pool - 1;
  store(cached.pooled(p, a.pool), a.cache.pooled_dtype, Cached::pooled_at(p, a.pool, a.width) + c,
        sum / total);
}

// Of a long sequence only the last ring_length rows are kept, each in a place of its own.
__global__ void __launch_bounds__(kThreads) ring_kernel(StepView step, IndexRows a) {
  begin_dependent();
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= step.rows * a.width) return;
  const int64_t t = i / a.width, c = i % a.width;
  const Sequence& s = step.sequence[step.row_sequence[t]];
  if (t - s.row < s.rows - a.cache.ring_length) return;
  float* to = Cached(step, a.cache, s).ring(position_of(s, t), a.width);
  to[c] = a.key(t)[c];
  to[a.width + c] = a.gate(t)[c];
}

}  // namespace

void latent_write(cudaStream_t stream, const StepView& step, const kernels::LatentWrite& a) {
  if (step.rows == 0) return;
  launch_dependent(stream, "latent_write", blocks_for(step.rows * a.latent.cols, kThreads), kThreads, 0,
                   latent_kernel, step, rows_of<const float>(a.latent), a.latent.cols, a.cache);
}

void index_write(cudaStream_t stream, const StepView& step, const kernels::IndexWrite& a) {
  if (step.rows == 0) return;
  const IndexRows rows{
      rows_of<const float>(a.key), rows_of<const float>(a.gate), a.ape, a.pool, a.key.cols, a.cache};
  const unsigned blocks = blocks_for(step.rows * a.key.cols, kThreads);
  launch_dependent(stream, "index_write", blocks, kThreads, 0, pool_kernel, step, rows);
  launch_dependent(stream, "index_write", blocks, kThreads, 0, ring_kernel, step, rows);
}

}  // namespace godwit::sm90
