// Which part of each tensor a rank holds, for --tp N --ep M (glm5_next spec §17, design §11).
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "config/model_config.h"
#include "weights/inventory.h"
#include "weights/totals.h"

namespace godwit {

struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

// The part of a tensor seen as a matrix [shape[0], product of the rest]; empty when the rank holds none of
// it.
struct Slice {
  Range rows, columns;
  bool empty() const { return rows.size() == 0 || columns.size() == 0; }
};

class ShardPlan {
 public:
  // tp ranks; ep divides tp and means ep groups of whole experts, each expert cut over the tp/ep ranks of its
  // group. Refused (usage, naming flag and value) when heads, intermediate widths or experts do not divide.
  static Result<ShardPlan> make(const TextConfig& text, int64_t tp, int64_t ep);

  int64_t tp() const { return tp_; }
  int64_t ep() const { return ep_; }
  int64_t expert_ranks() const { return tp_ / ep_; }  // ranks that share one expert

  Range vocabulary(int64_t rank) const;  // rows of embed_tokens and lm_head; sizes differ by at most one
  Range experts(int64_t rank) const;     // routed experts present on the rank
  Slice slice(const TensorSpec& tensor, int64_t rank) const;

 private:
  int64_t tp_ = 1, ep_ = 1;
  int64_t vocab_size_ = 0, routed_experts_ = 0;
};

// An F8 slice can be used in place only if a 128-block of the rank's part is a 128-block of the tensor: the
// cut must begin at a multiple of 128 or stay inside one block. Refused (usage) otherwise, naming the tensor
// and the cut. Quantisable tensors count as F8: pass found_inventory() to look at those that are.
Result<void> check_fp8_cuts(const ShardPlan& plan, const std::vector<TensorSpec>& inventory);

// What one rank keeps (spec §15.3).
TotalsTable rank_totals(const ShardPlan& plan, const std::vector<TensorSpec>& inventory, Form form,
                        int64_t rank);

}  // namespace godwit
