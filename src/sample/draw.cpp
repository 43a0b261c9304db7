#include "sample/draw.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sample/philox.h"

namespace godwit::sample {
namespace {

bool before(const Candidate& a, const Candidate& b) {
  return a.value > b.value || (a.value == b.value && a.id < b.id);
}

Candidate greatest(const float* logits, int64_t vocab) {
  Candidate best{logits[0], 0};
  for (int64_t i = 1; i < vocab; ++i) {
    if (logits[i] > best.value) best = {logits[i], static_cast<int32_t>(i)};
  }
  return best;
}

int64_t collect(const float* logits, int64_t vocab, Candidate* out) {
  int64_t n = 0;
  for (int64_t i = 0; i < vocab; ++i) {
    if (logits[i] > -std::numeric_limits<float>::infinity()) {
      out[n++] = {logits[i], static_cast<int32_t>(i)};
    }
  }
  return n;
}

// exp((value - greatest) / temperature): proportional to the probability, 1 for the most likely.
double weight(float value, float greatest, float temperature) {
  return std::exp((static_cast<double>(value) - greatest) / temperature);
}

// Keeps the shortest run of the most likely ids whose probability reaches top_p, at least one. Sorts only as
// far as it must: blocks of growing size are selected, sorted and summed. Returns how many are kept; the last
// of them is at candidates[kept - 1].
int64_t cut_top_p(Candidate* candidates, int64_t n, float greatest, const SamplingRow& row) {
  double total = 0;
  for (int64_t i = 0; i < n; ++i) total += weight(candidates[i].value, greatest, row.temperature);
  const double enough = total * row.top_p;
  double sum = 0;
  int64_t sorted = 0;
  for (int64_t block = 64; sorted < n; block *= 4) {
    const int64_t end = std::min(n, sorted + block);
    if (end < n) std::nth_element(candidates + sorted, candidates + end - 1, candidates + n, before);
    std::sort(candidates + sorted, candidates + end, before);
    for (; sorted < end; ++sorted) {
      sum += weight(candidates[sorted].value, greatest, row.temperature);
      if (sum >= enough) return sorted + 1;
    }
  }
  return n;
}

// The last candidate that top_k and top_p keep, in the order `before`.
Candidate cut(const float* logits, int64_t vocab, float greatest, const SamplingRow& row, Candidate* space) {
  constexpr Candidate kKeepAll{-std::numeric_limits<float>::max(), std::numeric_limits<int32_t>::max()};
  const bool by_count = row.top_k > 0 && row.top_k < vocab;
  if (!by_count && row.top_p >= 1) return kKeepAll;
  int64_t n = collect(logits, vocab, space);
  Candidate last = kKeepAll;
  if (by_count && row.top_k < n) {
    std::nth_element(space, space + row.top_k - 1, space + n, before);
    n = row.top_k;
    last = space[n - 1];
    // The sum of weights under top_p is taken in ascending order of ids, not in the order a selection left.
    std::sort(space, space + n, [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
  }
  if (row.top_p < 1) last = space[cut_top_p(space, n, greatest, row) - 1];
  return last;
}

int32_t draw(const float* logits, int64_t vocab, Candidate best, const SamplingRow& row, Candidate* space) {
  const Candidate last = cut(logits, vocab, best.value, row, space);
  const auto weight_of = [&](int64_t i) {
    const Candidate c{logits[i], static_cast<int32_t>(i)};
    if (c.value == -std::numeric_limits<float>::infinity() || before(last, c)) return 0.0;
    const double w = weight(c.value, best.value, row.temperature);
    return w >= row.min_p ? w : 0.0;
  };
  double total = 0;
  for (int64_t i = 0; i < vocab; ++i) total += weight_of(i);
  const double target = uniform(row) * total;
  double sum = 0;
  int32_t drawn = best.id;  // also the answer should rounding leave the sum below the target
  for (int64_t i = 0; i < vocab; ++i) {
    const double w = weight_of(i);
    if (w == 0) continue;
    drawn = static_cast<int32_t>(i);
    sum += w;
    if (sum > target) break;
  }
  return drawn;
}

// Logprobs of the processed row before temperature: the drawn id and the row.top_logprobs most likely.
void report_logprobs(const float* logits, int64_t vocab, float greatest, const SamplingRow& row,
                     Candidate* space, Sampled& out) {
  double sum = 0;
  for (int64_t i = 0; i < vocab; ++i) sum += std::exp(static_cast<double>(logits[i]) - greatest);
  const double log_sum = greatest + std::log(sum);
  out.logprob = static_cast<float>(logits[out.id] - log_sum);
  const int64_t n = collect(logits, vocab, space);
  out.top_count = static_cast<int32_t>(std::min<int64_t>({row.top_logprobs, kMaxTopLogprobs, n}));
  std::partial_sort(space, space + out.top_count, space + n, before);
  for (int32_t i = 0; i < out.top_count; ++i) {
    out.top_ids[i] = space[i].id;
    out.top_logprobs[i] = static_cast<float>(space[i].value - log_sum);
  }
}

}  // namespace

Sampled sample_row(float* logits, int64_t vocab, const SamplingRow& row, const RowContext& context,
                   Candidate* workspace) {
  Sampled out{};
  if (row.scored >= 0) {
    out.id = row.scored;
    out.finite = is_finite_row(logits, vocab) ? 1 : 0;
    if (out.finite) report_logprobs(logits, vocab, greatest(logits, vocab).value, row, workspace, out);
    return out;
  }
  if (!process_logits(logits, vocab, row, context)) {
    out.finite = 0;
    return out;
  }
  const Candidate best = greatest(logits, vocab);
  out.id = row.temperature > 0 ? draw(logits, vocab, best, row, workspace) : best.id;
  if (row.top_logprobs >= 0) report_logprobs(logits, vocab, best.value, row, workspace, out);
  return out;
}

}  // namespace godwit::sample
