#include "weights/totals.h"

namespace godwit {

std::string_view name_of(Component component) {
  constexpr std::string_view kNames[kComponentCount] = {
      "embed_tokens", "lm_head",   "KDA attention", "MLA projections", "kv_b_proj",
      "indexer",      "dense MLP", "router",        "shared experts",  "routed experts",
      "mHC",          "norms",     "eh_proj",       "vision"};
  return kNames[static_cast<int>(component)];
}

Totals& Totals::operator+=(const Totals& other) {
  tensors += other.tensors;
  parameters += other.parameters;
  f8_elements += other.f8_elements;
  bf16_elements += other.bf16_elements;
  f32_elements += other.f32_elements;
  weight_bytes += other.weight_bytes;
  scale_bytes += other.scale_bytes;
  return *this;
}

Totals totals_of(Storage storage, Form form, int64_t rows, int64_t columns) {
  Totals out;
  if (rows == 0 || columns == 0) return out;
  const int64_t elements = rows * columns;
  out.tensors = 1;
  out.parameters = elements;
  if (storage == Storage::quantised && form == Form::fp8) {
    const int64_t scales = scale_count(rows) * scale_count(columns);
    out.tensors = 2;
    out.f8_elements = elements;
    out.f32_elements = scales;
    out.weight_bytes = elements;
    out.scale_bytes = scales * size_of(DType::f32);
  } else if (storage == Storage::f32) {
    out.f32_elements = elements;
    out.weight_bytes = elements * size_of(DType::f32);
  } else {
    out.bf16_elements = elements;
    out.weight_bytes = elements * size_of(DType::bf16);
  }
  return out;
}

void TotalsTable::add(const TensorSpec& tensor, const Totals& totals) {
  (tensor.nextn ? nextn : main)[static_cast<size_t>(tensor.component)] += totals;
}

Totals TotalsTable::main_total() const {
  Totals sum;
  for (int c = 0; c < kComponentCount; ++c) {
    if (c != static_cast<int>(Component::vision)) sum += main[static_cast<size_t>(c)];
  }
  return sum;
}

Totals TotalsTable::nextn_total() const {
  Totals sum;
  for (const Totals& part : nextn) sum += part;
  return sum;
}

Totals TotalsTable::vision_total() const {
  return main[static_cast<size_t>(Component::vision)];
}

Totals TotalsTable::all() const {
  Totals sum = main_total();
  sum += nextn_total();
  sum += vision_total();
  return sum;
}

TotalsTable totals(const std::vector<TensorSpec>& inventory, Form form) {
  TotalsTable table;
  for (const TensorSpec& tensor : inventory) {
    table.add(tensor, totals_of(tensor.storage, form, tensor.rows(), tensor.columns()));
  }
  return table;
}

}  // namespace godwit
