// StepCost: how long a step will take, learned from how long steps took. Turns the inter-token target into a
// number of prompt rows.
#pragma once

#include <cstdint>

namespace godwit::schedule {

// y ≈ a + b x over the last few dozen points; older ones fade. Where x hardly varied its slope cannot be
// known: it leans to the line through the origin, which errs towards small slices.
class FadingLine {
 public:
  void add(double x, double y);
  bool empty() const { return weight_ == 0; }
  double intercept() const { return mean_y_ - slope() * mean_x_; }  // >= 0
  double slope() const;                                             // >= 0
  double at(double x) const { return empty() ? 0 : intercept() + slope() * x; }

 private:
  double weight_ = 0, mean_x_ = 0, mean_y_ = 0, xx_ = 0, xy_ = 0;
};

class StepCost {
 public:
  StepCost(int64_t target_ns, int64_t most_rows) : target_ns_(target_ns), most_rows_(most_rows) {}

  // A step with so many rows of the decode family and of prompts took `ns`.
  void observe(int64_t decode_rows, int64_t prompt_rows, int64_t ns);
  // Prompt rows the next step may carry beside `decode_rows`; a multiple of 64 from 64 to most_rows.
  int64_t prompt_rows(int64_t decode_rows) const;

 private:
  double fixed_ns(int64_t decode_rows) const;    // what the step takes apart from its number of prompt rows
  double allowed_ns(int64_t decode_rows) const;  // what it may take in all

  int64_t target_ns_;
  int64_t most_rows_;
  FadingLine decode_;     // ns of steps without prompt rows, by decode rows
  FadingLine prompt_;     // ns that prompt rows added, by prompt rows
  int64_t proven_ = 256;  // prompt rows that were seen to fit; the next slice is at most twice as long
};

}  // namespace godwit::schedule
