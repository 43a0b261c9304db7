// The full list of tensors a configuration implies (glm5_next spec §3.3), and the check of a checkpoint
// against it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "config/model_config.h"
#include "weights/checkpoint.h"

namespace godwit {

// What a tensor may be stored as. The release's own dtype comes first and is what totals count.
enum class Storage : uint8_t {
  bf16,       // BF16 or F32
  f32,        // F32 or BF16
  quantised,  // F8_E4M3 with a .weight_scale_inv sibling, else BF16 or F32 (§3.4)
};

// Rows of the table of spec §3.6, plus eh_proj of the NextN block.
enum class Component : uint8_t {
  embed,
  lm_head,
  kda,
  mla,
  kv_b,
  indexer,
  dense,
  router,
  shared_experts,
  experts,
  mhc,
  norms,
  eh_proj,
  vision
};
constexpr int kComponentCount = 14;
std::string_view name_of(Component component);

// How tensor parallelism cuts a tensor (§17).
enum class Split : uint8_t { replicated, rows, columns };

struct TensorSpec {
  std::string name;
  std::vector<int64_t> shape;
  Storage storage = Storage::bf16;
  Component component = Component::norms;
  Split split = Split::replicated;
  bool nextn = false;  // belongs to the draft block
  int expert = -1;     // routed expert, else -1

  int64_t elements() const;
  int64_t rows() const { return shape[0]; }
  int64_t columns() const { return elements() / shape[0]; }
  bool is_scalable() const { return storage == Storage::quantised; }
};

// "X.weight" -> "X.weight_scale_inv".
std::string scale_name(std::string_view weight_name);

// Scale tensors are not listed: they belong to their weight and are [ceil(rows/128), ceil(columns/128)] F32.
std::vector<TensorSpec> make_inventory(const ModelConfig& config);

// The draft block may be absent or incomplete when the engine is not going to draft.
enum class NextnUse : uint8_t { required, optional };

struct CheckReport {
  int64_t fp8_weights = 0;                 // weights found with block scales
  std::vector<std::string> nextn_missing;  // NextnUse::optional only; empty: the block is complete
};

// Every tensor accounted for: a missing or an unknown one, a wrong shape or dtype, scales without F8 or F8
// without scales are one data_refused error that names up to ten tensors with found and expected shapes.
// A_log may be [H] or [1,1,H,1].
Result<CheckReport> check_checkpoint(const Checkpoint& checkpoint, const std::vector<TensorSpec>& inventory,
                                     NextnUse nextn = NextnUse::required);

// The tensors of `inventory` that are there, each with its storage as found: quantised means F8_E4M3 with
// scales, so totals(..., Form::fp8) of the result counts the bytes of this checkpoint.
std::vector<TensorSpec> found_inventory(const Checkpoint& checkpoint,
                                        const std::vector<TensorSpec>& inventory);

// Every block scale is finite and above zero; data_refused naming tensor, block and value. After
// check_checkpoint.
Result<void> check_scales(const Checkpoint& checkpoint, const std::vector<TensorSpec>& inventory);

}  // namespace godwit
