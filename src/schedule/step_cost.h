// StepCost: how long a step will take, learned from how long steps took. Turns the inter-token target into a
// number of prompt rows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace godwit::schedule {

// A curve through the means of what was measured at [unit, 2 unit), [2 unit, 4 unit) … Each mean forgets by
// itself: what was learned about small slices is still known after a thousand large ones. Below the first
// mean the curve goes to the origin, beyond the last it is flat.
class CostCurve {
 public:
  explicit CostCurve(int64_t unit) : unit_(unit) {}

  void learn(int64_t x, double y);
  bool known(int64_t x) const { return points_[octave(x)].seen; }
  double at(int64_t x) const;
  // The largest x with at(x) <= y, and at most twice what was ever measured: the next octave is tried in
  // steps.
  double reach(double y) const;
  double largest() const;  // x of the last mean; 0: none

 private:
  struct Point {
    double x = 0, y = 0;
    bool seen = false;
  };
  size_t octave(int64_t x) const;

  int64_t unit_;
  std::array<Point, 20> points_;
};

class StepCost {
 public:
  StepCost(int64_t target_ns, int64_t most_rows) : target_ns_(target_ns), most_rows_(most_rows) {}

  struct Rows {
    int64_t decode = 0;  // of the decode family
    int64_t prompt = 0;
    int64_t scored =
        0;  // of those of prompts, rows that get logits: each costs a pass through the vocabulary
  };
  // A step with so many rows took `ns`, without its copies between the tiers.
  void observe(const Rows& rows, int64_t ns);
  // So many bytes were copied between the tiers in `ns`.
  void observe_copies(int64_t bytes, int64_t ns);
  // Prompt rows the next step may carry beside `decode_rows` and copies of so many bytes: a multiple of 64
  // from 64 to most_rows. 0 when there were never so many decode rows (to the octave): one step without
  // prompt rows then measures them.
  int64_t prompt_rows(int64_t decode_rows, int64_t copied_bytes = 0) const;
  // The same where all of them are scored.
  int64_t scored_rows(int64_t decode_rows, int64_t copied_bytes = 0) const;
  // Bytes that the next step may copy beside `decode_rows`: a quarter of the target, or what they leave of
  // it. 0 while nothing was measured.
  int64_t copy_bytes(int64_t decode_rows) const;

 private:
  double for_prompts(int64_t decode_rows, int64_t copied_bytes) const;
  double ns_per_byte() const { return copying_ns_ / copied_bytes_; }

  int64_t target_ns_;
  int64_t most_rows_;
  CostCurve decode_{1};   // ns of steps without prompt rows, by rows
  CostCurve prompt_{64};  // ns that prompt rows add, by rows
  CostCurve scored_{64};  // ns that scored rows add beyond that, by rows
  // Sums that forget. By volume: small copies cost more a byte, and it is the large ones that matter.
  double copied_bytes_ = 0, copying_ns_ = 0;
};

}  // namespace godwit::schedule
