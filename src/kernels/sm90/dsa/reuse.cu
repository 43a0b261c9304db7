// index_reuse (kernels/ops/dsa.h): a thread an entry of a row's list.
#include "kernels/sm90/device/pipeline.cuh"
#include "kernels/sm90/dsa/paged.cuh"
#include "kernels/sm90/launches.h"

namespace godwit::sm90 {
namespace {

constexpr int kThreads = 128;

struct Reuse {
  Rows<const int32_t> pools, count;
  const int32_t* rows;
  int32_t ahead, pool;
  int32_t room;  // entries of a list
  Rows<int32_t> out_pools, out_count;
};

__global__ void __launch_bounds__(kThreads) reuse_kernel(StepView step, Reuse a) {
  begin_dependent();
  const int64_t r = blockIdx.x, from = a.rows ? a.rows[r] : r;
  const int listed = a.count(from)[0];
  int first = 0, more = 0;  // pools completed since the list was made
  if (a.ahead > 0) {
    const int64_t end = position_of(step.sequence[step.row_sequence[r]], r) + 1;
    const int shift = __ffs(a.pool) - 1;  // P divides a page
    first = static_cast<int>(max(end - a.ahead, int64_t{0}) >> shift);
    more = static_cast<int>(end >> shift) - first;
  }
  for (int i = threadIdx.x; i < a.room; i += kThreads)
    a.out_pools(r)[i] = i < listed ? a.pools(from)[i] : i < listed + more ? first + i - listed : -1;
  if (threadIdx.x == 0) a.out_count(r)[0] = listed + more;
}

}  // namespace

void index_reuse(cudaStream_t stream, const StepView& step, const kernels::IndexReuse& a) {
  if (a.out_pools.rows == 0) return;
  const Reuse args{rows_of<const int32_t>(a.pools),
                   rows_of<const int32_t>(a.count),
                   a.rows,
                   a.ahead,
                   a.pool,
                   static_cast<int32_t>(a.out_pools.cols),
                   rows_of<int32_t>(a.out_pools),
                   rows_of<int32_t>(a.out_count)};
  launch_dependent(stream, "index_reuse", blocks_for(a.out_pools.rows, 1), kThreads, 0, reuse_kernel, step,
                   args);
}

}  // namespace godwit::sm90
