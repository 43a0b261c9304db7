// Comm: the sums and gathers between the ranks of one replica (design §11). Present at every reduction point
// of the model; one rank means nothing happens.
#pragma once

#include "tensor/tensor.h"

namespace godwit::comm {

class Comm {
 public:
  virtual ~Comm() = default;
  virtual int64_t rank() const = 0;
  virtual int64_t size() const = 0;
  // x = sum over ranks 0…n-1, added in that order (design §7). In place.
  virtual void all_reduce(const View& x) = 0;  // [T, C]
  // out[t] = the ranks' rows side by side, in rank order.
  virtual void all_gather(const View& x, const View& out) = 0;  // [T, C / n] -> [T, C]
};

// The only rank of its replica: every sum is already there, and all_gather needs x to be `out` itself.
class Solo final : public Comm {
 public:
  int64_t rank() const override { return 0; }
  int64_t size() const override { return 1; }
  void all_reduce(const View&) override {}
  void all_gather(const View& x, const View& out) override { GODWIT_ASSERT(x.data == out.data); }
};

}  // namespace godwit::comm
