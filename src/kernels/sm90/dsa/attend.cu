// mla_attend (glm5_next spec §9.2, §10.4), plain form: one block a row and head; scores of the listed tokens
// lie in shared memory, then their latents are added up in list order.
#include "kernels/sm90/device/pipeline.cuh"
#include "kernels/sm90/dsa/paged.cuh"
#include "kernels/sm90/launches.h"

namespace godwit::sm90 {
namespace {

using kernels::Sequence;

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;

struct Attend {
  Rows<const float> query;  // [T, heads width]
  kernels::DsaCache cache;
  Rows<const int32_t> pools, count;
  int32_t pool;
  int64_t heads, width;
  float scale;
  Rows<float> out;  // [T, heads width]
};

template <class L>
__global__ void __launch_bounds__(kThreads) attend_kernel(StepView step, Attend a) {
  begin_dependent();
  float* const p = dynamic_shared<float>();  // [tokens]
  const int64_t t = blockIdx.x / a.heads, head = blockIdx.x % a.heads;
  const Sequence& s = step.sequence[step.row_sequence[t]];
  const Cached cached(step, a.cache, s);
  const int64_t end = position_of(s, t) + 1;
  const int listed = a.count(t)[0] * a.pool;
  const int tokens = listed + static_cast<int>(end % a.pool);
  const auto position = [&](int j) {
    if (j < listed) return int64_t{a.pools(t)[j / a.pool]} * a.pool + j % a.pool;
    return end / a.pool * a.pool + (j - listed);
  };
  const float* q = a.query(t) + head * a.width;
  for (int j = threadIdx.x / 32; j < tokens; j += kWarps) {
    const StoredValues c = cached.stored_latent(position(j), a.width);
    float dot = 0;
    for (int64_t i = threadIdx.x % 32; i < a.width; i += 32) dot = fmaf(q[i], c.at<L>(i), dot);
    dot = a.scale * warp_sum(dot);
    if (threadIdx.x % 32 == 0) p[j] = dot;
  }
  __syncthreads();
  float largest = -INFINITY;  // a NaN score is not hidden: it comes back in every term
  for (int j = 0; j < tokens; ++j) largest = fmaxf(largest, p[j]);
  __syncthreads();
  float total = 0;
  for (int j = threadIdx.x; j < tokens; j += kThreads) total += p[j] = expf(p[j] - largest);
  total = block_sum<kThreads>(total);  // also orders the writes of p before the reads below
  for (int64_t c = threadIdx.x; c < a.width; c += kThreads) {
    float sum = 0;
    for (int j = 0; j < tokens; ++j) {
      sum = fmaf(p[j], cached.stored_latent(position(j), a.width).template at<L>(c), sum);
    }
    a.out(t)[head * a.width + c] = sum / total;
  }
}

}  // namespace

void mla_attend(cudaStream_t stream, const StepView& step, const kernels::MlaAttend& a) {
  if (step.rows == 0) return;
  const Attend args{rows_of<const float>(a.query),   a.cache, rows_of<const int32_t>(a.pools),
                    rows_of<const int32_t>(a.count), a.pool,  a.heads,
                    a.query.cols / a.heads,          a.scale, rows_of<float>(a.out)};
  const unsigned blocks = blocks_for(step.rows * a.heads, 1);
  const size_t bytes = static_cast<size_t>(a.pools.cols * a.pool + a.pool) * sizeof(float);
  const auto kernel = a.cache.latent_dtype == DType::f32    ? attend_kernel<float>
                      : a.cache.latent_dtype == DType::bf16 ? attend_kernel<bf16>
                                                            : attend_kernel<f8_e4m3>;
  launch_dependent(stream, "mla_attend", blocks, kThreads, bytes, kernel, step, args);
}

}  // namespace godwit::sm90
