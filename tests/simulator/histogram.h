// Percentiles of durations in fixed memory: buckets of 1/128 of a power of two, from 1 µs to centuries.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

namespace godwit::simulator {

class Histogram {
 public:
  void add(int64_t ns) {
    const double us = std::max(static_cast<double>(ns) / 1000, 1.0);
    ++counts_[std::min(static_cast<size_t>(std::log2(us) * kFine), counts_.size() - 1)];
    ++count_;
    longest_ns_ = std::max(longest_ns_, ns);
  }
  int64_t count() const { return count_; }
  double longest_ms() const { return static_cast<double>(longest_ns_) / 1e6; }
  // Upper edge of the bucket; 0.6 % at most above the true value.
  double ms(double percentile) const {
    const double wanted = percentile / 100 * static_cast<double>(count_);
    int64_t seen = 0;
    for (size_t i = 0; i < counts_.size(); ++i) {
      seen += counts_[i];
      if (count_ > 0 && static_cast<double>(seen) >= wanted)
        return std::min(std::exp2(static_cast<double>(i + 1) / kFine) / 1000, longest_ms());
    }
    return 0;
  }

 private:
  static constexpr double kFine = 128;
  std::array<int64_t, 8192> counts_{};
  int64_t count_ = 0;
  int64_t longest_ns_ = 0;
};

}  // namespace godwit::simulator
