// The draw of a whole row by one block, plain form: for rows whose penalties count the draw of the row
// before. The order of operations and the cuts are those of src/sample.
#pragma once

#include "kernels/sm90/head/block.cuh"

namespace godwit::sm90::head {

struct Row {
  const kernels::Sample& a;
  const sample::SamplingRow& row;
  float* logits;  // [vocab]
  int64_t vocab;

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
    bool drawable = false, fine = true;
    for (int64_t i = threadIdx.x; i < vocab; i += kThreads) {
      const float l = processed(a, row, vocab, i, logits[i]);
      fine &= l < INFINITY;
      drawable |= l > kNever;
      logits[i] = l;
    }
    fine = __syncthreads_and(fine);
    return __syncthreads_or(drawable) && fine;
  }

  // The best candidate below `limit`.
  __device__ uint64_t best_below(uint64_t limit) const {
    uint64_t best = 0;
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < vocab; i += kThreads) {
      const uint64_t word = candidate(logits[i], i);
      if (word < limit && word > best) best = word;
    }
    return max_of(best);
  }

  // Units of an id that top_k and top_p keep.
  __device__ uint64_t units(int64_t i, float greatest, uint64_t cut, float min_p) const {
    if (logits[i] == kNever || candidate(logits[i], i) < cut) return 0;
    return units_of(exponent_of(logits[i], greatest, row.temperature), min_p);
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
      return sum_of(count) >= row.top_k;
    });
  }

  // The shortest run of the most likely ids whose probability reaches top_p.
  __device__ uint64_t cut_top_p(float greatest, uint64_t cut_k) const {
    if (row.top_p >= 1) return cut_k;
    const auto units_from = [&](uint64_t cut) {
      uint64_t sum = 0;
      for (int64_t i = threadIdx.x; i < vocab; i += kThreads) sum += units(i, greatest, cut, 0);
      return static_cast<double>(sum_of(sum));
    };
    const double enough = units_from(cut_k) * row.top_p;
    const uint64_t cut = bisect([&](uint64_t word) { return units_from(max(word, cut_k)) >= enough; });
    return max(cut, cut_k);
  }

  __device__ int32_t draw(uint64_t best) const {
    __shared__ int32_t drawn;
    const float greatest = logits[index_of(best)];
    const uint64_t cut = cut_top_p(greatest, cut_top_k());
    const auto kept = [&](int64_t i) { return units(i, greatest, cut, row.min_p); };
    // A thread's ids are consecutive, so that units of threads in order are those of ascending ids.
    const int64_t share = (vocab + kThreads - 1) / kThreads, first = threadIdx.x * share;
    const int64_t last = min(vocab, first + share);
    uint64_t own = 0;
    for (int64_t i = first; i < last; ++i) own += kept(i);
    const Prefix p = prefix_of(own);
    const int32_t id = walk(first, last, p.before, own, target_of(row, p.all), kept);
    if (id >= 0) drawn = id;
    __syncthreads();
    return drawn;
  }

  __device__ double log_sum(float greatest) const {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < vocab; i += kThreads)
      sum += exp(static_cast<double>(logits[i]) - greatest);
    return greatest + log(sum_of(sum));
  }

  __device__ void report(double log_sum, sample::Sampled& out) const {
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

// What one thread leaves of a draw.
__device__ inline void leave(const kernels::Sample& a, int64_t i, const sample::Sampled& out,
                             bool last_of_slot) {
  const sample::SamplingRow& row = a.rows[i];
  a.out[i] = out;
  if (row.scored >= 0) return;
  if (last_of_slot) a.last_token[row.slot] = max(out.id, 0);
  if (row.history != 0 && out.finite != 0) ++a.history.counts[row.slot * a.history.stride + out.id];
}

// Row i, all of it.
__device__ inline void draw_row(const kernels::Sample& a, int64_t i) {
  const sample::SamplingRow& row = a.rows[i];
  const Row r{a, row, static_cast<float*>(a.logits.data) + i * a.logits.stride, a.logits.cols};
  sample::Sampled out{};
  if (r.process()) {
    const uint64_t best = r.best_below(~uint64_t{0});
    out.id = row.temperature > 0 ? r.draw(best) : index_of(best);
    if (row.top_logprobs >= 0) r.report(r.log_sum(r.logits[index_of(best)]), out);
  } else {
    out.finite = 0;
  }
  __syncthreads();
  if (threadIdx.x == 0) leave(a, i, out, true);
  __syncthreads();  // the next row reads the history
}

}  // namespace godwit::sm90::head
