// Everything of a chunk that does not depend on the state before it: a block a chunk and head.
#include "kernels/sm90/kda/chunk_rows.cuh"
#include "kernels/sm90/kda/chunk_squares.cuh"

namespace godwit::sm90 {
namespace {

using namespace chunk;
using namespace chunk::prep;

__global__ void __launch_bounds__(kThreads, 2) prep_kernel(StepView step, Chunks a) {
  begin_dependent();
  Shared& s = *dynamic_shared<Shared>();
  const int32_t place = static_cast<int32_t>(blockIdx.x) / a.heads;
  const int head = static_cast<int>(blockIdx.x) - place * a.heads;
  const Place at = find(step, place);
  if (at.live == 0) return;
  Record& out = a.records[blockIdx.x];
  const int warp = threadIdx.x / 32;
  const kernels::Sequence& sequence = step.sequence[at.sequence];
  const Chunk chunk{sequence, head, at.first + kRows * warp, at.live - kRows * warp};
  if (threadIdx.x < kTokens) {
    const int r = static_cast<int>(threadIdx.x);
    s.beta[r] = r < at.live ? sigmoid(a.beta(int64_t{sequence.row} + at.first + r)[head]) : 0.0f;
  }
  if (a.f_b.w.data) {
    stage_low<kThreads>(a.f_b.x, int64_t{sequence.row} + at.first, at.live, s.kc());
    __syncthreads();
    multiply_forget(a, int64_t{head} * kDim, s);
    __syncthreads();
  }
  float x[kRows][4];
#pragma unroll 1
  for (int part = 0; part < 3; ++part) {
    load_rows(a, chunk, part, x);
    if (part == 2) {
      put_values(x, out);
    } else {
      put_unit_rows(x, part == 0 ? kQueryScale : 1.0f, part == 0 ? s.q : s.k);
    }
  }
  load_decays(a, chunk, s, x);
  __syncthreads();
  scale_rows(x, s, out);
  __syncthreads();
  {
    Gram both[2] = {};
    multiply_gram(s, warp % 2, warp / 2, both);
    __syncthreads();  // the columns of k lay where L comes, q and k where sums are exchanged
    store_gram(s, out, warp % 2, warp / 2, both);
  }
  __syncthreads();
  invert(s);
#pragma unroll 1
  for (int task = threadIdx.x; task < kTokens * kTokens / 8; task += kThreads) {
    const int i = task / 8, j = task % 8 * 8;
    if (j / kSub > i / kSub) continue;  // not read
    float v[8];
#pragma unroll
    for (int c = 0; c < 8; ++c) v[c] = -s.t[i][j + c] * s.beta[j + c];
    *reinterpret_cast<uint4*>(&out.t[0][0] + swizzled(i, j)) = {pack(v[0], v[1]), pack(v[2], v[3]),
                                                                pack(v[4], v[5]), pack(v[6], v[7])};
  }
}

}  // namespace

void chunk::prepare_chunks(cudaStream_t stream, const StepView& step, const Chunks& a) {
  static const bool sized = [] {
    check(cudaFuncSetAttribute(prep_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared)),
          "kda_chunk");
    return true;
  }();
  static_cast<void>(sized);
  const int64_t all = places(step.rows - step.decode_rows, step.sequences - step.decode_sequences);
  launch_dependent(stream, "kda_chunk", blocks_for(all * a.heads, 1), kThreads, sizeof(Shared), prep_kernel,
                   step, a);
}

}  // namespace godwit::sm90
