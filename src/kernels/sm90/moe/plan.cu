// Sorts the chosen experts into groups: one block counts, sums up and scatters.
#include "kernels/sm90/moe/groups.cuh"

namespace godwit::sm90 {
namespace {

constexpr int kThreads = 1024, kWarps = kThreads / 32;

struct Choice {
  Rows<const int32_t> ids;  // [T, k]
  int32_t rows, chosen;
  int32_t first, held;  // experts of this rank
  bool shared;
  int32_t width;  // rows of a group
  Groups to;
};

// Inclusive sum over the block; both halves of a word are sums of their own. All threads must call.
__device__ uint64_t block_scan(uint64_t v, uint64_t* totals) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int o = 1; o < 32; o *= 2) {
    const uint64_t other = __shfl_up_sync(0xffffffffu, v, o);
    if (lane >= o) v += other;
  }
  __syncthreads();  // an earlier call's reads are done
  if (lane == 31) totals[warp] = v;
  __syncthreads();
  for (int w = 0; w < warp; ++w) v += totals[w];
  return v;
}

__global__ void __launch_bounds__(kThreads) plan_kernel(Choice a) {
  int32_t* const memory = dynamic_shared<int32_t>();
  int32_t *count = memory, *next = memory + a.held;  // of each expert: its entries, where the next goes
  __shared__ uint64_t totals[kWarps];
  let_next_start();
  wait_for_previous();
  for (int e = threadIdx.x; e < a.held; e += kThreads) count[e] = 0;
  __syncthreads();
  const int entries = a.rows * a.chosen;
  const auto local = [&](int i) { return a.ids(i / a.chosen)[i % a.chosen] - a.first; };
  const auto is_held = [&](int e) { return e >= 0 && e < a.held; };
  for (int i = threadIdx.x; i < entries; i += kThreads) {
    const int e = local(i);
    if (is_held(e)) atomicAdd(count + e, 1);
  }
  __syncthreads();
  uint64_t before = 0;  // entries in the low half, groups in the high one
  for (int first = 0; first < a.held; first += kThreads) {
    const int e = first + static_cast<int>(threadIdx.x);
    const int rows = e < a.held ? count[e] : 0;
    const int groups = (rows + a.width - 1) / a.width;
    const uint64_t own = static_cast<uint64_t>(groups) << 32 | static_cast<uint32_t>(rows);
    const uint64_t sum = before + block_scan(own, totals);
    const uint64_t start = sum - own;
    if (e < a.held) next[e] = static_cast<int32_t>(start & 0xffffffffu);
    for (int g = 0; g < groups; ++g) {
      a.to.group[(start >> 32) + g] = {e, static_cast<int32_t>(start & 0xffffffffu) + g * a.width,
                                       min(a.width, rows - g * a.width), 0};
    }
    __syncthreads();
    if (threadIdx.x == kThreads - 1) totals[0] = sum;
    __syncthreads();
    before = totals[0];
  }
  __syncthreads();
  for (int i = threadIdx.x; i < entries; i += kThreads) {
    const int e = local(i);
    if (!is_held(e)) continue;
    const int at = atomicAdd(next + e, 1);
    a.to.entry[at] = i;
    a.to.token[at] = i / a.chosen;
  }
  const int routed_rows = static_cast<int>(before & 0xffffffffu), routed = static_cast<int>(before >> 32);
  const int shared = a.shared ? (a.rows + a.width - 1) / a.width : 0;
  for (int g = threadIdx.x; g < shared; g += kThreads) {
    a.to.group[routed + g] = {-1, routed_rows + g * a.width, min(a.width, a.rows - g * a.width), 0};
  }
  for (int t = threadIdx.x; t < (a.shared ? a.rows : 0); t += kThreads) {
    a.to.entry[routed_rows + t] = entries + t;
    a.to.token[routed_rows + t] = t;
  }
  if (threadIdx.x == 0) a.to.count[0] = routed, a.to.count[1] = shared;
}

}  // namespace

void plan_groups(cudaStream_t stream, const kernels::Experts& a, bool shared, int32_t width,
                 const Groups& to) {
  const Choice c{rows_of<const int32_t>(a.ids),
                 static_cast<int32_t>(a.x.rows),
                 static_cast<int32_t>(a.ids.cols),
                 a.first_expert,
                 a.expert_count,
                 shared,
                 width,
                 to};
  launch_dependent(stream, "experts", 1, kThreads, 2 * sizeof(int32_t) * static_cast<size_t>(a.expert_count),
                   plan_kernel, c);
}

}  // namespace godwit::sm90
