// sample (kernels/ops/head.h), plain form: one block a slot. The order of operations and the cuts are those
// of src/sample; sums over the vocabulary are f64 in an order that depends on its size only.
#include "kernels/sm90/device/common.cuh"
#include "kernels/sm90/device/pipeline.cuh"
#include "kernels/sm90/launches.h"
#include "sample/philox.h"
#include "sample/processors.h"

namespace godwit::sm90 {
namespace {

constexpr int kThreads = 512;
constexpr float kNever = -INFINITY;

// Reductions over the block; every thread gets the result, all threads must call.
template <class T, class F>
__device__ T block_fold(T v, F fold) {
  __shared__ T partial[kThreads / 32];
  for (int offset = 16; offset > 0; offset /= 2) v = fold(v, __shfl_xor_sync(0xffffffffu, v, offset));
  __syncthreads();
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = v;
  __syncthreads();
  T all = partial[0];
  for (int w = 1; w < kThreads / 32; ++w) all = fold(all, partial[w]);
  return all;
}
__device__ double sum_of(double v) {
  return block_fold(v, [](double a, double b) { return a + b; });
}
__device__ uint64_t max_of(uint64_t v) {
  return block_fold(v, [](uint64_t a, uint64_t b) { return a > b ? a : b; });
}

__device__ bool bit(const uint32_t* words, int64_t i) {
  return (words[i / 32] >> (i % 32)) & 1u;
}

// One row and its block.
struct Row {
  const kernels::Sample& a;
  const sample::SamplingRow& row;
  float* logits;  // [vocab]
  int64_t vocab;
  int32_t* history;  // [vocab] or null

  // A thread's own ids are consecutive, so that sums of threads in order are sums over ascending ids.
  __device__ int64_t share() const { return (vocab + kThreads - 1) / kThreads; }
  __device__ int64_t first() const { return threadIdx.x * share(); }
  __device__ int64_t last() const { return min(vocab, first() + share()); }

  __device__ bool all_below_infinity() const {
    bool fine = true;
    for (int64_t i = threadIdx.x; i < vocab; i += kThreads) fine &= logits[i] < INFINITY;
    return __syncthreads_and(fine);
  }

  // sample::process_logits.
  __device__ bool process() const {
    if (!all_below_infinity()) return false;
    if (threadIdx.x == 0) {  // in order: an id may be named twice
      for (int32_t i = 0; i < row.bias_count; ++i) {
        logits[a.bias_ids[row.bias_offset + i]] += a.bias_values[row.bias_offset + i];
      }
    }
    __syncthreads();
    const uint32_t* mask = row.mask >= 0 ? a.masks + row.mask * ((vocab + 31) / 32) : nullptr;
    for (int64_t i = threadIdx.x; i < vocab; i += kThreads) {
      float l = logits[i];
      if (history != nullptr && history[i] != 0) {
        const int32_t times = history[i] & (sample::kInPrompt - 1);
        l = l > 0 ? l / row.repetition_penalty : l * row.repetition_penalty;
        if (times > 0) l -= row.presence_penalty + row.frequency_penalty * static_cast<float>(times);
      }
      if ((mask != nullptr && !bit(mask, i)) || (a.banned != nullptr && bit(a.banned, i))) l = kNever;
      logits[i] = l;
    }
    __syncthreads();
    if (row.stop_suppressed != 0 && static_cast<int32_t>(threadIdx.x) < a.stop_count)
      logits[a.stop_ids[threadIdx.x]] = kNever;
    __syncthreads();
    if (!all_below_infinity()) return false;
    bool drawable = false;
    for (int64_t i = threadIdx.x; i < vocab; i += kThreads) drawable |= logits[i] > kNever;
    return __syncthreads_or(drawable);
  }

  // The best candidate below `limit`.
  __device__ uint64_t best_below(uint64_t limit) const {
    uint64_t best = 0;
    for (int64_t i = threadIdx.x; i < vocab; i += kThreads) {
      const uint64_t word = candidate(logits[i], i);
      if (word < limit && word > best) best = word;
    }
    return max_of(best);
  }

  // e^((value - greatest) / temperature) of an id that top_k and top_p keep.
  __device__ double weight(int64_t i, float greatest, uint64_t cut) const {
    if (logits[i] == kNever || candidate(logits[i], i) < cut) return 0;
    return exp((static_cast<double>(logits[i]) - greatest) / row.temperature);
  }

  // The largest word `cut` for which keeps(cut) still holds; keeps(0) holds and it is monotone.
  template <class F>
  __device__ uint64_t bisect(F keeps) const {
    uint64_t cut = 0;
    for (int b = 63; b >= 0; --b) {
      const uint64_t next = cut | uint64_t{1} << b;
      if (keeps(next)) cut = next;
    }
    return cut;
  }

  __device__ uint64_t cut_top_k() const {
    if (row.top_k <= 0 || row.top_k >= vocab) return 0;
    return bisect([&](uint64_t cut) {
      int count = 0;
      for (int64_t i = threadIdx.x; i < vocab; i += kThreads) {
        count += logits[i] > kNever && candidate(logits[i], i) >= cut;
      }
      return block_fold(count, [](int x, int y) { return x + y; }) >= row.top_k;
    });
  }

  // The shortest run of the most likely ids whose probability reaches top_p.
  __device__ uint64_t cut_top_p(float greatest, uint64_t cut_k) const {
    if (row.top_p >= 1) return cut_k;
    const auto weight_from = [&](uint64_t cut) {
      double sum = 0;
      for (int64_t i = first(); i < last(); ++i) sum += weight(i, greatest, cut);
      return sum_of(sum);
    };
    const double enough = weight_from(cut_k) * row.top_p;
    const uint64_t cut = bisect([&](uint64_t word) { return weight_from(max(word, cut_k)) >= enough; });
    return max(cut, cut_k);
  }

  __device__ int32_t draw(uint64_t best) const {
    __shared__ double sums[kThreads + 1];
    __shared__ int32_t drawn;
    const float greatest = logits[index_of(best)];
    const uint64_t cut = cut_top_p(greatest, cut_top_k());
    const auto kept = [&](int64_t i) {
      const double w = weight(i, greatest, cut);
      return w >= row.min_p ? w : 0.0;
    };
    double own = 0;
    for (int64_t i = first(); i < last(); ++i) own += kept(i);
    __syncthreads();
    sums[threadIdx.x + 1] = own;
    __syncthreads();
    if (threadIdx.x == 0) {
      sums[0] = 0;
      for (int i = 1; i <= kThreads; ++i) sums[i] += sums[i - 1];
      drawn = index_of(best);  // the answer should rounding leave every sum below the target
    }
    __syncthreads();
    const double target = sample::uniform(row) * sums[kThreads];
    if (own > 0 && sums[threadIdx.x] <= target && target < sums[threadIdx.x + 1]) {
      double sum = sums[threadIdx.x];
      for (int64_t i = first(); i < last() && sum <= target; ++i) {
        const double w = kept(i);
        if (w == 0) continue;
        drawn = static_cast<int32_t>(i);
        sum += w;
      }
    }
    __syncthreads();
    return drawn;
  }

  __device__ void report(uint64_t best, sample::Sampled& out) const {
    const float greatest = logits[index_of(best)];
    double sum = 0;
    for (int64_t i = first(); i < last(); ++i) sum += exp(static_cast<double>(logits[i]) - greatest);
    const double log_sum = greatest + log(sum_of(sum));
    const int most = min(row.top_logprobs, sample::kMaxTopLogprobs);
    out.logprob = static_cast<float>(logits[out.id] - log_sum);
    uint64_t word = ~uint64_t{0};
    for (int i = 0; i < most; ++i) {
      word = best_below(word);
      if (word == 0 || logits[index_of(word)] == kNever) break;
      out.top_ids[i] = index_of(word);
      out.top_logprobs[i] = static_cast<float>(logits[index_of(word)] - log_sum);
      out.top_count = i + 1;
    }
  }
};

// Rows of one slot are drawn one after the other by the block of the first, each counting in the history of
// the next.
__global__ void __launch_bounds__(kThreads) sample_kernel(kernels::Sample a) {
  begin_dependent();
  const int64_t first = blockIdx.x;
  const int32_t slot = a.rows[first].slot;
  if (slot == kernels::kNoSlot) return;
  const auto drawn_after = [&](int64_t i) {  // row i goes on where a draw of the same slot stopped
    return i > 0 && i < a.logits.rows && a.rows[i].slot == slot && a.rows[i - 1].slot == slot &&
           a.rows[i - 1].scored < 0;
  };
  if (drawn_after(first)) return;
  for (int64_t i = first; i == first || drawn_after(i); ++i) {
    const sample::SamplingRow& row = a.rows[i];
    const Row r{a, row, static_cast<float*>(a.logits.data) + i * a.logits.stride, a.logits.cols,
                row.history != 0 ? a.history.counts + slot * a.history.stride : nullptr};
    sample::Sampled out{};
    if (row.scored >= 0) {
      out.id = row.scored;
      out.finite = r.all_below_infinity() ? 1 : 0;
      if (out.finite != 0) r.report(r.best_below(~uint64_t{0}), out);
      if (threadIdx.x == 0) a.out[i] = out;
      return;
    }
    if (r.process()) {
      const uint64_t best = r.best_below(~uint64_t{0});
      out.id = row.temperature > 0 ? r.draw(best) : index_of(best);
      if (row.top_logprobs >= 0) r.report(best, out);
    } else {
      out.finite = 0;
    }
    if (threadIdx.x == 0) {
      a.out[i] = out;
      a.last_token[slot] = max(out.id, 0);
      if (r.history != nullptr && out.finite != 0) ++r.history[out.id];
    }
    __syncthreads();  // the next row reads the history
  }
}

}  // namespace

void sample(cudaStream_t stream, const kernels::Sample& a) {
  if (a.logits.rows == 0) return;
  if (a.stop_count > kThreads) fatal("sample: more stop ids than threads", cudaErrorInvalidValue);
  launch_dependent(stream, "sample", blocks_for(a.logits.rows, 1), kThreads, 0, sample_kernel, a);
}

}  // namespace godwit::sm90
