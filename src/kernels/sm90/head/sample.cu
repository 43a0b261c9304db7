// sample (kernels/ops/head.h) in three launches, each over parts of rows: processors and the best candidate;
// the weights of candidates, which give the cuts; what the cuts keep, and the draw. The last block of a row
// to arrive sums up. Greedy rows end in the first. Sums are integers or in ascending order of parts, so a
// draw depends on its row alone.
#include "kernels/sm90/device/pipeline.cuh"
#include "kernels/sm90/head/cut.cuh"

namespace godwit::sm90 {
namespace head {
namespace {

constexpr int kEach = 8, kPart = kThreads * kEach;  // ids of a part
constexpr uint64_t kBad = ~uint64_t{0};             // a part with NaN or +inf

// Of a row, between the launches.
struct alignas(64) Summary {
  uint64_t best;  // candidate; 0: nothing can be drawn
  uint64_t cut;
  double log_sum;
  uint32_t arrived[3];  // blocks, by launch; 0 between steps
};

struct Scratch {
  Summary* summaries;
  std::byte* rows;
  int32_t parts;

  static constexpr int64_t bytes_of_row(int64_t parts) { return kBins * 12 + (parts * 24 + 63) / 64 * 64; }
  __device__ std::byte* row(int64_t i) const { return rows + i * (kBins * 12 + (parts * 24 + 63) / 64 * 64); }
  __device__ Summary& summary(int64_t i) const { return summaries[i]; }
  __device__ Histogram histogram(int64_t i) const {
    return {reinterpret_cast<unsigned long long*>(row(i)), reinterpret_cast<uint32_t*>(row(i) + kBins * 8)};
  }
  // [parts] each.
  __device__ uint64_t* best(int64_t i) const { return reinterpret_cast<uint64_t*>(row(i) + kBins * 12); }
  __device__ uint64_t* kept(int64_t i) const { return best(i) + parts; }
  __device__ double* exponentials(int64_t i) const { return reinterpret_cast<double*>(kept(i) + parts); }
};

// Row i waits for the draw of the row before: both count in one history.
__device__ bool follows(const kernels::Sample& a, int64_t i) {
  return i > 0 && i < a.logits.rows && a.rows[i].history != 0 && a.rows[i].slot == a.rows[i - 1].slot &&
         a.rows[i].scored < 0 && a.rows[i - 1].scored < 0;
}
__device__ bool last_of_slot(const kernels::Sample& a, int64_t i) {
  return i + 1 == a.logits.rows || a.rows[i + 1].slot != a.rows[i].slot;
}
__device__ bool draws(const sample::SamplingRow& row) {
  return row.scored < 0 && row.temperature > 0;
}
__device__ bool reports(const sample::SamplingRow& row) {
  return row.scored >= 0 || row.top_logprobs >= 0;
}
__device__ bool cuts(const sample::SamplingRow& row, int64_t vocab) {
  return draws(row) && (row.top_p < 1 || (row.top_k > 0 && row.top_k < vocab));
}

// One block's part of a row.
struct Part {
  int64_t i;  // row
  int part;
  Row r;

  __device__ Part(const kernels::Sample& a, const Scratch& s)
      : i(blockIdx.x / static_cast<unsigned>(s.parts)),
        part(static_cast<int>(blockIdx.x % static_cast<unsigned>(s.parts))),
        r{a, a.rows[i], static_cast<float*>(a.logits.data) + i * a.logits.stride, a.logits.cols} {}
  __device__ bool skipped() const { return r.row.slot == kernels::kNoSlot || follows(r.a, i); }
  __device__ int64_t first() const { return int64_t{part} * kPart; }
  __device__ int64_t last() const { return min(r.vocab, first() + kPart); }
};

// Whether this is the last of a row's blocks; then it sees what the others wrote (__ldcg).
__device__ bool last_to_arrive(uint32_t& arrived, int32_t parts) {
  __shared__ bool last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    last = atomicAdd(&arrived, 1u) == static_cast<uint32_t>(parts) - 1;
    if (last) arrived = 0;
  }
  __syncthreads();
  return last;
}

// logit_bias, penalties and masks. False for NaN or +inf, before them or after.
__device__ bool process(const Part& p) {
  const Row& r = p.r;
  bool fine = true;
  if (r.row.bias_count > 0) {
    for (int64_t i = p.first() + threadIdx.x; i < p.last(); i += kThreads) fine &= r.logits[i] < INFINITY;
    __syncthreads();
    if (threadIdx.x == 0) {  // in order: an id may be named twice
      for (int32_t e = r.row.bias_offset; e < r.row.bias_offset + r.row.bias_count; ++e) {
        const int64_t id = r.a.bias_ids[e];
        if (id >= p.first() && id < p.last()) r.logits[id] += r.a.bias_values[e];
      }
    }
    __syncthreads();
  }
#pragma unroll 1
  for (int64_t i = p.first() + threadIdx.x; i < p.last(); i += kThreads) {
    const float old = r.logits[i], l = processed(r.a, r.row, r.vocab, i, old);
    fine &= (r.row.bias_count > 0 || old < INFINITY) && l < INFINITY;
    if (l != old) r.logits[i] = l;
  }
  return fine;
}

__global__ void __launch_bounds__(kThreads)
    process_kernel(const __grid_constant__ kernels::Sample a, const __grid_constant__ Scratch s) {
  begin_dependent();
  const Part p(a, s);
  if (p.skipped()) return;
  const Row& r = p.r;
  const bool scored = r.row.scored >= 0;
  if (cuts(r.row, r.vocab)) {
    const Histogram h = s.histogram(p.i);
    for (int b = p.part * kThreads + static_cast<int>(threadIdx.x); b < kBins; b += s.parts * kThreads) {
      h.units[b] = 0;
      h.count[b] = 0;
    }
  }
  bool fine = true;
  if (!scored && (r.row.bias_count > 0 || r.row.history != 0 || r.row.mask >= 0 ||
                  r.row.stop_suppressed != 0 || a.banned != nullptr)) {
    fine = process(p);
  }
  const float* own = r.logits + p.first() + threadIdx.x;
  const auto count = static_cast<int>(p.last() - p.first());
  float values[kEach];
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    values[j] = static_cast<int>(threadIdx.x) + j * kThreads < count ? own[j * kThreads] : kNever;
  }
  float best = kNever;
  int at = 0;
#pragma unroll
  for (int j = 0; j < kEach; ++j) {  // ids ascend, so that the first of equals is kept
    fine &= values[j] < INFINITY;
    if (values[j] > best) best = values[j], at = j;
  }
  const bool any = best > kNever || scored;
  uint64_t word = any ? candidate(best, p.first() + threadIdx.x + at * kThreads) : 0;
  word = max_of(fine ? word : kBad);
  if (threadIdx.x == 0) s.best(p.i)[p.part] = word;
  Summary& summary = s.summary(p.i);
  if (!last_to_arrive(summary.arrived[0], s.parts)) return;
  word = 0;
  for (int e = static_cast<int>(threadIdx.x); e < s.parts; e += kThreads)
    word = max(word, __ldcg(s.best(p.i) + e));
  word = max_of(word);
  if (threadIdx.x != 0) return;
  if (word == kBad) word = 0;
  summary.best = word;
  if (draws(r.row) || reports(r.row)) return;
  sample::Sampled out{};
  out.finite = word != 0;
  if (word != 0) out.id = index_of(word);
  leave(a, p.i, out, last_of_slot(a, p.i));
}

__global__ void __launch_bounds__(kThreads)
    weigh_kernel(const __grid_constant__ kernels::Sample a, const __grid_constant__ Scratch s) {
  begin_dependent();
  const Part p(a, s);
  const Row& r = p.r;
  const bool by_cut = cuts(r.row, r.vocab), reported = reports(r.row);
  if (p.skipped() || !(by_cut || reported)) return;
  Summary& summary = s.summary(p.i);
  if (summary.best == 0) return;
  const float greatest = r.logits[index_of(summary.best)];
  const Histogram h = s.histogram(p.i);
  double sum = 0;
#pragma unroll 1
  for (int64_t i = p.first() + threadIdx.x; i < p.last(); i += kThreads) {
    const float l = r.logits[i];
    if (reported) sum += exp(static_cast<double>(l) - greatest);
    if (!by_cut || l == kNever) continue;
    const double x = exponent_of(l, greatest, r.row.temperature);
    const int bin = bin_of(x);
    if (bin == kBins - 1) continue;
    atomicAdd(h.count + bin, 1u);
    atomicAdd(h.units + bin, static_cast<unsigned long long>(units_of(x, 0)));
  }
  sum = sum_of(sum);
  if (threadIdx.x == 0) s.exponentials(p.i)[p.part] = sum;
  if (!last_to_arrive(summary.arrived[1], s.parts)) return;
  if (reported) {  // a thread's parts in order, then the threads
    sum = 0;
    for (int e = static_cast<int>(threadIdx.x); e < s.parts; e += kThreads)
      sum += __ldcg(s.exponentials(p.i) + e);
    sum = sum_of(sum);
    if (threadIdx.x == 0) summary.log_sum = greatest + log(sum);
  }
  if (!by_cut) return;
  const uint64_t cut = cut_of(r, greatest, h);
  if (threadIdx.x == 0) summary.cut = cut;
}

// The id drawn from what is kept, by the last block of the row to arrive; -1 in the others.
__device__ int32_t draw(const Part& p, const Scratch& s, Summary& summary) {
  __shared__ int32_t drawn;
  const Row& r = p.r;
  const float greatest = r.logits[index_of(summary.best)];
  const uint64_t cut = cuts(r.row, r.vocab) ? summary.cut : 0;
  const auto units = [&](int64_t i) { return r.units(i, greatest, cut, r.row.min_p); };
  uint64_t own = 0;
#pragma unroll 1
  for (int64_t i = p.first() + threadIdx.x; i < p.last(); i += kThreads) own += units(i);
  own = sum_of(own);
  if (threadIdx.x == 0) s.kept(p.i)[p.part] = own;
  if (!last_to_arrive(summary.arrived[2], s.parts)) return -1;
  // The part where the draw falls, then the id in it. A thread's parts are consecutive.
  __shared__ int32_t part;
  __shared__ uint64_t before;
  const int32_t each = (s.parts + kThreads - 1) / kThreads,
                first_part = static_cast<int32_t>(threadIdx.x) * each;
  const int32_t last_part = min(s.parts, first_part + each);
  own = 0;
  for (int32_t e = first_part; e < last_part; ++e) own += __ldcg(s.kept(p.i) + e);
  const Prefix prefix = prefix_of(own);
  const uint64_t target = target_of(r.row, prefix.all);
  uint64_t here = prefix.before;
  for (int32_t e = first_part; e < last_part; ++e) {
    const uint64_t kept = __ldcg(s.kept(p.i) + e);
    if (here <= target && target - here < kept) part = e, before = here;
    here += kept;
  }
  if (threadIdx.x == 0) drawn = index_of(summary.best);
  __syncthreads();
  const int64_t first = int64_t{part} * kPart + int64_t{threadIdx.x} * kEach;
  const int64_t last = min(r.vocab, first + kEach);
  own = 0;
  for (int64_t i = first; i < last; ++i) own += units(i);
  const int32_t id = walk(first, last, before + prefix_of(own).before, own, target, units);
  if (id >= 0) drawn = id;
  __syncthreads();
  return drawn;
}

__global__ void __launch_bounds__(kThreads)
    draw_kernel(const __grid_constant__ kernels::Sample a, const __grid_constant__ Scratch s) {
  begin_dependent();
  const Part p(a, s);
  if (p.skipped()) return;
  const Row& r = p.r;
  Summary& summary = s.summary(p.i);
  const bool finite = summary.best != 0;
  if (draws(r.row) || reports(r.row)) {
    sample::Sampled out{};
    out.finite = finite;
    if (r.row.scored >= 0) {
      out.id = r.row.scored;
    } else if (finite) {
      out.id = index_of(summary.best);
    }
    if (finite && draws(r.row)) {
      out.id = draw(p, s, summary);
      if (out.id < 0) return;
    } else if (p.part != 0) {
      return;
    }
    if (finite && reports(r.row)) r.report(summary.log_sum, out);
    __syncthreads();
    if (threadIdx.x == 0) leave(a, p.i, out, last_of_slot(a, p.i));
  } else if (p.part != 0) {
    return;
  }
  for (int64_t i = p.i + 1; follows(a, i); ++i) {
    __syncthreads();  // the history of the row before
    draw_row(a, i);
  }
}

}  // namespace
}  // namespace head

int64_t sample_bytes(int64_t rows, int64_t vocab) {
  return rows * (int64_t{sizeof(head::Summary)} +
                 head::Scratch::bytes_of_row((vocab + head::kPart - 1) / head::kPart));
}

void sample(cudaStream_t stream, const kernels::Sample& a, std::byte* scratch, int64_t most_rows) {
  if (a.logits.rows == 0) return;
  const auto parts = static_cast<int32_t>((a.logits.cols + head::kPart - 1) / head::kPart);
  auto* const summaries = reinterpret_cast<head::Summary*>(scratch);
  const head::Scratch s{summaries, reinterpret_cast<std::byte*>(summaries + most_rows), parts};
  const unsigned blocks = blocks_for(a.logits.rows * s.parts, 1);
  launch_dependent(stream, "sample", blocks, head::kThreads, 0, head::process_kernel, a, s);
  launch_dependent(stream, "sample", blocks, head::kThreads, 0, head::weigh_kernel, a, s);
  launch_dependent(stream, "sample", blocks, head::kThreads, 0, head::draw_kernel, a, s);
}

}  // namespace godwit::sm90
