// Counts over an inventory: tensors, parameters and bytes by component (glm5_next spec §3.6).
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tensor/tensor.h"
#include "weights/inventory.h"

namespace godwit {

// The FP8 release (spec §3.1: every quantised tensor is F8_E4M3 with scales) or its BF16 sibling.
enum class Form : uint8_t { fp8, bf16 };

struct Totals {
  int64_t tensors = 0;     // scale tensors included
  int64_t parameters = 0;  // scale elements excluded
  int64_t f8_elements = 0;
  int64_t bf16_elements = 0;
  int64_t f32_elements = 0;  // scales included
  int64_t weight_bytes = 0;  // scales excluded
  int64_t scale_bytes = 0;

  int64_t bytes() const { return weight_bytes + scale_bytes; }
  Totals& operator+=(const Totals& other);
};

// Of one matrix [rows, columns] and its scales; nothing when it is empty.
Totals totals_of(Storage storage, Form form, int64_t rows, int64_t columns);

struct TotalsTable {
  std::array<Totals, kComponentCount> main;   // by Component; vision stands in main[Component::vision]
  std::array<Totals, kComponentCount> nextn;  // the draft block

  void add(const TensorSpec& tensor, const Totals& totals);
  Totals main_total() const;  // without vision
  Totals nextn_total() const;
  Totals vision_total() const;
  Totals all() const;
};

TotalsTable totals(const std::vector<TensorSpec>& inventory, Form form);

// Blocks of 128 that cover `extent` rows or columns; the last may be ragged.
inline int64_t scale_count(int64_t extent) {
  return (extent + kFp8Block - 1) / kFp8Block;
}

}  // namespace godwit
