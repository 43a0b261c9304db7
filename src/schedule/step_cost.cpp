#include "schedule/step_cost.h"

#include <algorithm>
#include <bit>

#include "cache/cache.h"

namespace godwit::schedule {
namespace {

constexpr int64_t kLeastRows = cache::kPageTokens;
constexpr double kRate = 0.125;  // how much of a mean the newest measurement is
// A step that hung (a page fault, a noisy neighbour) counts as at most so many times what was expected.
constexpr double kOutlier = 2;
// Step times scatter; the aim is below the target so that the 99th percentile meets it.
constexpr double kAim = 0.95;
// Where not even the smallest slice meets the target, a step may take this much more than with the smallest:
// newcomers move on, and nobody decodes more than a fifth slower for it.
constexpr double kLeastShare = 0.2;
// Of the target, for copies between the tiers: what they take, prompts do not get.
constexpr double kCopyShare = 0.25;

}  // namespace

size_t CostCurve::octave(int64_t x) const {
  const auto units = static_cast<uint64_t>(std::max<int64_t>(x / unit_, 1));
  return std::min(static_cast<size_t>(std::bit_width(units)) - 1, points_.size() - 1);
}

void CostCurve::learn(int64_t x, double y) {
  Point& p = points_[octave(x)];
  const double rate = p.seen ? kRate : 1;
  p.x += rate * (static_cast<double>(x) - p.x);
  p.y += rate * (y - p.y);
  p.seen = true;
}

double CostCurve::at(int64_t x) const {
  Point below;
  for (const Point& p : points_) {
    if (!p.seen) continue;
    if (const double to = static_cast<double>(x); to <= p.x)
      return below.y + (p.y - below.y) * (to - below.x) / (p.x - below.x);
    below = p;
  }
  return below.y;
}

double CostCurve::reach(double y) const {
  Point best, after;  // the last point that costs at most y, and the one after it
  for (const Point& p : points_) {
    if (!p.seen) continue;
    if (p.y <= y) {
      best = p;
      after = {};
    } else if (!after.seen) {
      after = p;
    }
  }
  if (!after.seen) return 2 * best.x;
  return best.x + (after.x - best.x) * (y - best.y) / (after.y - best.y);
}

double CostCurve::largest() const {
  double x = 0;
  for (const Point& p : points_)
    if (p.seen) x = p.x;
  return x;
}

// What the dearest kind of rows in the step added is learned, the others are taken as known.
void StepCost::observe(const Rows& rows, int64_t ns) {
  const auto learn = [ns](CostCurve& curve, int64_t x, double others) {
    double took = static_cast<double>(ns);
    if (curve.known(x)) took = std::min(took, kOutlier * (others + curve.at(x)));
    curve.learn(x, std::max(took - others, 0.0));
  };
  const double decode = decode_.at(rows.decode);
  if (rows.scored > 0) {
    learn(scored_, rows.scored, decode + prompt_.at(rows.prompt));
  } else if (rows.prompt > 0) {
    learn(prompt_, rows.prompt, decode);
  } else if (rows.decode > 0) {  // else the step only copied
    learn(decode_, rows.decode, 0);
  }
}

void StepCost::observe_copies(int64_t bytes, int64_t ns) {
  if (bytes <= 0) return;
  double took = static_cast<double>(std::max<int64_t>(ns, 1));
  if (copied_bytes_ > 0) took = std::min(took, kOutlier * static_cast<double>(bytes) * ns_per_byte());
  copied_bytes_ += static_cast<double>(bytes) - kRate * copied_bytes_;
  copying_ns_ += took - kRate * copying_ns_;
}

int64_t StepCost::copy_bytes(int64_t decode_rows) const {
  if (copied_bytes_ == 0) return 0;
  const double target = static_cast<double>(target_ns_);
  const double ns = std::min(kAim * target - decode_.at(decode_rows), kCopyShare * target);
  constexpr double kMost = 1LL << 50;  // an immeasurably fast copy
  return static_cast<int64_t>(std::clamp(ns / ns_per_byte(), 0.0, kMost));
}

// What of a step's time prompt rows may take.
double StepCost::for_prompts(int64_t decode_rows, int64_t copied_bytes) const {
  const double decode = decode_.at(decode_rows);
  const double least = decode + prompt_.at(kLeastRows);
  const double copies = copied_bytes_ > 0 ? static_cast<double>(copied_bytes) * ns_per_byte() : 0;
  const double aim = kAim * static_cast<double>(target_ns_) - copies;
  return std::max(aim, (1 + kLeastShare) * least) - decode;
}

int64_t StepCost::prompt_rows(int64_t decode_rows, int64_t copied_bytes) const {
  if (decode_rows == 0) return most_rows_;  // nobody waits between tokens
  if (!decode_.known(decode_rows)) return 0;
  const double ns = for_prompts(decode_rows, copied_bytes);
  const int64_t rows = static_cast<int64_t>(prompt_.reach(ns)) / kLeastRows * kLeastRows;
  return std::clamp(rows, kLeastRows, std::max(most_rows_, kLeastRows));
}

int64_t StepCost::scored_rows(int64_t decode_rows, int64_t copied_bytes) const {
  if (decode_rows == 0) return most_rows_;
  if (!decode_.known(decode_rows)) return 0;
  const double ns = for_prompts(decode_rows, copied_bytes);
  // Pages that fit, and that do not; as with prompts, at most twice what was measured.
  int64_t fit = 1, more = std::min(most_rows_, static_cast<int64_t>(2 * scored_.largest())) / kLeastRows + 1;
  while (more - fit > 1) {
    const int64_t middle = (fit + more) / 2, rows = middle * kLeastRows;
    (prompt_.at(rows) + scored_.at(rows) <= ns ? fit : more) = middle;
  }
  return fit * kLeastRows;
}

}  // namespace godwit::schedule
