#include "schedule/step_cost.h"

#include <algorithm>

#include "cache/cache.h"

namespace godwit::schedule {
namespace {

constexpr double kFade = 1.0 - 1.0 / 32;
// A single step that hung (a page fault, a noisy neighbour) counts as at most so many times what was
// expected.
constexpr double kOutlier = 2;
// Step times scatter; the aim is below the target so that the 99th percentile meets it.
constexpr double kAim = 0.95;
// Prompt rows may always take this part of the time that the rest of the step takes anyway. Where the target
// cannot be met at all, newcomers still move on, and nobody decodes more than a quarter slower for it.
constexpr double kLeastShare = 0.25;

}  // namespace

void FadingLine::add(double x, double y) {
  weight_ = weight_ * kFade + 1;
  const double dx = x - mean_x_, dy = y - mean_y_;
  mean_x_ += dx / weight_;
  mean_y_ += dy / weight_;
  xx_ = xx_ * kFade + dx * (x - mean_x_);
  xy_ = xy_ * kFade + dx * (y - mean_y_);
}

double FadingLine::slope() const {
  if (mean_x_ <= 0 || mean_y_ <= 0) return 0;
  const double through_origin = mean_y_ / mean_x_;
  const double lean = mean_x_ * mean_x_ / 64;
  const double slope = (xy_ / weight_ + lean * through_origin) / (xx_ / weight_ + lean);
  return std::clamp(slope, 0.0, through_origin);
}

double StepCost::fixed_ns(int64_t decode_rows) const {
  return decode_.at(static_cast<double>(decode_rows)) + prompt_.intercept();
}

double StepCost::allowed_ns(int64_t decode_rows) const {
  return std::max(static_cast<double>(target_ns_), (1 + kLeastShare) * fixed_ns(decode_rows) / kAim);
}

void StepCost::observe(int64_t decode_rows, int64_t prompt_rows, int64_t ns) {
  const double d = static_cast<double>(decode_rows), p = static_cast<double>(prompt_rows);
  double took = static_cast<double>(ns);
  FadingLine& line = prompt_rows == 0 ? decode_ : prompt_;
  if (!line.empty())
    took = std::min(took, kOutlier * (decode_.at(d) + (prompt_rows == 0 ? 0 : prompt_.at(p))));
  if (prompt_rows == 0) return decode_.add(d, took);
  prompt_.add(p, std::max(took - decode_.at(d), 0.0));
  if (decode_rows == 0) return;
  const bool fits = static_cast<double>(ns) <= allowed_ns(decode_rows);
  proven_ = fits ? std::max(proven_, prompt_rows) : std::min(proven_, prompt_rows);
}

int64_t StepCost::prompt_rows(int64_t decode_rows) const {
  constexpr int64_t kLeast = cache::kPageTokens;
  if (decode_rows == 0) return most_rows_;  // nobody waits between tokens
  double rows = static_cast<double>(2 * proven_);
  if (const double slope = prompt_.slope(); slope > 0)
    rows = std::min(rows, (kAim * allowed_ns(decode_rows) - fixed_ns(decode_rows)) / slope);
  const int64_t whole = static_cast<int64_t>(rows) / kLeast * kLeast;
  return std::clamp(whole, kLeast, std::max(most_rows_, kLeast));
}

}  // namespace godwit::schedule
