// Where top_k and top_p cut a row, from its histogram: candidates by exponent, most likely first.
#pragma once

#include "kernels/sm90/head/row.cuh"

namespace godwit::sm90::head {

constexpr int kBins = 2048, kEachBin = kBins / kThreads;
constexpr int kMostListed = 1024;  // candidates of the bin in which a cut falls

// Bins are a 64th of an exponent wide; the last takes the rest. As none of that has units, it is not counted,
// and a cut in it cuts nothing.
__device__ inline int bin_of(double x) {
  return static_cast<int>(min(-64 * x, static_cast<double>(kBins - 1)));
}

struct Histogram {
  unsigned long long* units;  // [kBins]
  uint32_t* count;            // [kBins]
};

// A block's own copy of one.
struct Bins {
  uint64_t units[kBins];
  uint32_t count[kBins];

  __device__ void load(const Histogram& from) {
#pragma unroll
    for (int j = 0; j < kEachBin; ++j) {
      const int b = j * kThreads + static_cast<int>(threadIdx.x);
      units[b] = __ldcg(from.units + b);
      count[b] = __ldcg(from.count + b);
    }
    __syncthreads();
  }
};

struct Listed {
  uint64_t word[kMostListed], units[kMostListed];
  int count;
};

// The first bin at which `reached` holds of the amounts summed so far; kBins when there is none.
template <class A, class R>
__device__ inline int edge_of(A amount, R reached) {
  __shared__ int bin;
  const int first = static_cast<int>(threadIdx.x) * kEachBin;
  uint64_t own = 0;
#pragma unroll 1
  for (int b = first; b < first + kEachBin; ++b) own += amount(b);
  const Prefix p = prefix_of(own);
  if (threadIdx.x == 0) bin = kBins;
  __syncthreads();
  if (reached(p.before + own) && (threadIdx.x == 0 || !reached(p.before))) {
    uint64_t sum = p.before;
    int b = first;
    for (; b < first + kEachBin - 1; ++b) {
      sum += amount(b);
      if (reached(sum)) break;
    }
    bin = b;
  }
  __syncthreads();
  return bin;
}
template <class A>
__device__ inline uint64_t amount_before(int bin, A amount) {
  uint64_t own = 0;
#pragma unroll 1
  for (int b = threadIdx.x; b < bin; b += kThreads) own += amount(b);
  return sum_of(own);
}

// Adds id i to the list when it is of this bin.
__device__ inline void add_to(Listed& list, const Row& r, float greatest, int bin, int64_t i) {
  const double x = exponent_of(r.logits[i], greatest, r.row.temperature);
  if (bin_of(x) != bin) return;
  const int at = atomicAdd(&list.count, 1);
  if (at >= kMostListed) return;
  list.word[at] = candidate(r.logits[i], i);
  list.units[at] = units_of(x, 0);
}

// All candidates of a bin, in any order. False when they are too many.
__device__ inline bool list_bin(const Row& r, float greatest, int bin, Listed& list) {
  __syncthreads();
  if (threadIdx.x == 0) list.count = 0;
  __syncthreads();
  // Most of a row is ruled out without a division; the margin is wider than what rounding could hide.
  const float width = r.row.temperature / 64, margin = 0.5f * width + 1e-6f * fabsf(greatest);
  const float high = greatest - width * static_cast<float>(bin) + margin;
  const float low = greatest - width * static_cast<float>(bin + 1) - margin;
  constexpr int kAtOnce = 16;  // loads of a thread that are on their way together
#pragma unroll 1
  for (int64_t first = threadIdx.x; first < r.vocab; first += kAtOnce * kThreads) {
    float values[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int64_t i = first + j * kThreads;
      values[j] = i < r.vocab ? r.logits[i] : kNever;
    }
    unsigned found = 0;
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      if (values[j] >= low && values[j] <= high) found |= 1u << j;
    }
#pragma unroll 1
    for (; found != 0; found &= found - 1)
      add_to(list, r, greatest, bin, first + (__ffs(static_cast<int>(found)) - 1) * kThreads);
  }
  __syncthreads();
  return list.count <= kMostListed;
}

// The best listed word of which found(how many are as good, their units) holds; 0 when of none. `units` gets
// the units.
template <class F>
__device__ inline uint64_t best_listed(const Listed& list, F found, uint64_t& units) {
  __shared__ uint64_t of_best;
  uint64_t best = 0, best_units = 0;
  for (int e = static_cast<int>(threadIdx.x); e < list.count; e += kThreads) {
    uint64_t rank = 0, sum = 0;
#pragma unroll 1
    for (int other = 0; other < list.count; ++other) {
      if (list.word[other] < list.word[e]) continue;
      ++rank;
      sum += list.units[other];
    }
    if (found(rank, sum) && list.word[e] > best) best = list.word[e], best_units = sum;
  }
  const uint64_t all = max_of(best);
  if (best == all) of_best = best_units;
  __syncthreads();
  units = of_best;
  return all;
}

// The last word that top_k and top_p keep; 0 keeps all.
__device__ inline uint64_t cut_of(const Row& r, float greatest, const Histogram& h) {
  __shared__ Listed list;
  __shared__ Bins bins;
  bins.load(h);
  const auto count = [](int b) { return uint64_t{bins.count[b]}; };
  const auto units = [](int b) { return bins.units[b]; };
  uint64_t cut = 0, all = amount_before(kBins, units);
  if (r.row.top_k > 0 && r.row.top_k < r.vocab) {
    const auto kept = static_cast<uint64_t>(r.row.top_k);
    const int bin = edge_of(count, [kept](uint64_t n) { return n >= kept; });
    if (bin < kBins - 1) {
      const uint64_t before = amount_before(bin, count), units_before = amount_before(bin, units);
      if (!list_bin(r, greatest, bin, list)) return r.cut_top_p(greatest, r.cut_top_k());
      uint64_t listed = 0;
      cut = best_listed(
          list, [&](uint64_t rank, uint64_t) { return before + rank >= kept; }, listed);
      all = units_before + listed;
    }
  }
  if (r.row.top_p >= 1) return cut;
  const double enough = static_cast<double>(all) * r.row.top_p;
  const auto reached = [enough](uint64_t n) { return static_cast<double>(n) >= enough; };
  const int bin = edge_of(units, reached);
  if (bin >= kBins - 1) return cut;
  const uint64_t before = amount_before(bin, units);
  if (!list_bin(r, greatest, bin, list)) return r.cut_top_p(greatest, cut);
  uint64_t listed = 0;
  const uint64_t cut_p = best_listed(
      list, [&](uint64_t, uint64_t sum) { return reached(before + sum); }, listed);
  return max(cut, cut_p);
}

}  // namespace godwit::sm90::head
