#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <set>

#include "weights/inventory.h"
#include "weights/load.h"
#include "weights/totals.h"

namespace godwit {
namespace {

// Collects findings; the first ones go into the message, the rest is counted.
class Findings {
 public:
  void add(std::string tensor, std::string what) {
    constexpr size_t kMostShown = 10;
    if (count_ == 0) first_tensor_ = std::move(tensor);
    if (count_++ < kMostShown)
      text_ += "\n  " + what;
    else
      ++hidden_;
  }
  bool empty() const { return count_ == 0; }
  Error error() const {
    std::string more = hidden_ ? fmt::format("\n  and {} more", hidden_) : "";
    return make_error(ErrorCode::data_refused, first_tensor_,
                      "the checkpoint does not match its config.json in {} tensor{}:{}{}", count_,
                      count_ == 1 ? "" : "s", text_, more);
  }

 private:
  size_t count_ = 0, hidden_ = 0;
  std::string first_tensor_, text_;
};

std::string described(const TensorRef& ref) {
  return fmt::format("{} [{}] in {} at offset {}", name_of(ref.dtype), fmt::join(ref.shape, ", "), ref.file,
                     ref.offset);
}

// A_log is written as [H] or as [1, 1, H, 1] (§3.3): for it, sizes of 1 do not count.
bool is_same_shape(const TensorSpec& tensor, const std::vector<int64_t>& found) {
  if (found == tensor.shape) return true;
  if (!tensor.name.ends_with(".A_log")) return false;
  return found == std::vector<int64_t>{1, 1, tensor.shape[0], 1};
}

bool is_unquantised(DType type) {
  return type == DType::bf16 || type == DType::f32;
}

class Check {
 public:
  Check(const Checkpoint& checkpoint, NextnUse nextn) : checkpoint_(checkpoint), nextn_(nextn) {}

  Result<CheckReport> run(const std::vector<TensorSpec>& inventory) {
    for (const TensorSpec& tensor : inventory) one(tensor);
    for (const auto& [name, ref] : checkpoint_.tensors()) {
      if (!seen_.count(name))
        findings_.add(name, fmt::format("{}: {} is not part of this model", name, described(ref)));
    }
    if (!findings_.empty()) return findings_.error();
    return std::move(report_);
  }

 private:
  void one(const TensorSpec& tensor) {
    const std::string expected = fmt::format("[{}]", fmt::join(tensor.shape, ", "));
    const TensorRef* ref = checkpoint_.find(tensor.name);
    if (!ref) {
      if (tensor.nextn && nextn_ == NextnUse::optional) {
        report_.nextn_missing.push_back(tensor.name);
      } else {
        findings_.add(tensor.name, fmt::format("{}: missing, expected {}", tensor.name, expected));
      }
    } else {
      seen_.insert(tensor.name);
      if (!is_same_shape(tensor, ref->shape)) {
        findings_.add(tensor.name,
                      fmt::format("{}: {}, expected shape {}", tensor.name, described(*ref), expected));
      }
    }
    const std::string scales_of = scale_name(tensor.name);
    const TensorRef* scales = tensor.storage == Storage::quantised ? checkpoint_.find(scales_of) : nullptr;
    if (scales) seen_.insert(scales_of);
    if (ref) dtypes(tensor, *ref, scales);
    if (!ref && scales) {
      findings_.add(scales_of, fmt::format("{}: {} without its weight", scales_of, described(*scales)));
    }
  }

  void dtypes(const TensorSpec& tensor, const TensorRef& ref, const TensorRef* scales) {
    if (!scales) {
      if (is_unquantised(ref.dtype)) return;
      const bool lacks_scales = ref.dtype == DType::f8_e4m3 && tensor.storage == Storage::quantised;
      findings_.add(tensor.name, fmt::format("{}: {}, {}", tensor.name, described(ref),
                                             lacks_scales ? scale_name(tensor.name) + " is missing"
                                                          : "expected BF16 or F32"));
      return;
    }
    const std::string scales_of = scale_name(tensor.name);
    if (ref.dtype != DType::f8_e4m3) {
      findings_.add(tensor.name, fmt::format("{}: {}, expected F8_E4M3 because {} is there", tensor.name,
                                             described(ref), scales_of));
    }
    const std::vector<int64_t> shape = {scale_count(tensor.rows()), scale_count(tensor.columns())};
    if (scales->dtype != DType::f32 || scales->shape != shape) {
      findings_.add(scales_of, fmt::format("{}: {}, expected F32 [{}]", scales_of, described(*scales),
                                           fmt::join(shape, ", ")));
    }
    ++report_.fp8_weights;
  }

  const Checkpoint& checkpoint_;
  const NextnUse nextn_;
  std::set<std::string, std::less<>> seen_;
  Findings findings_;
  CheckReport report_;
};

}  // namespace

Result<CheckReport> check_checkpoint(const Checkpoint& checkpoint, const std::vector<TensorSpec>& inventory,
                                     NextnUse nextn) {
  return Check(checkpoint, nextn).run(inventory);
}

std::vector<TensorSpec> found_inventory(const Checkpoint& checkpoint,
                                        const std::vector<TensorSpec>& inventory) {
  std::vector<TensorSpec> found;
  for (const TensorSpec& tensor : inventory) {
    const TensorRef* ref = checkpoint.find(tensor.name);
    if (!ref) continue;
    found.push_back(tensor);
    found.back().storage = ref->dtype == DType::f8_e4m3 ? Storage::quantised
                           : ref->dtype == DType::f32   ? Storage::f32
                                                        : Storage::bf16;
  }
  return found;
}

Result<void> check_scales(const Checkpoint& checkpoint, const std::vector<TensorSpec>& inventory) {
  for (const TensorSpec& tensor : inventory) {
    if (tensor.storage != Storage::quantised) continue;
    const std::string name = scale_name(tensor.name);
    const TensorRef* ref = checkpoint.find(name);
    if (!ref) continue;
    const Buffer scales = load_f32(*ref);
    for (int64_t i = 0; i < ref->elements(); ++i) {
      const float scale = scales.as<float>()[i];
      if (std::isfinite(scale) && scale > 0) continue;
      const int64_t columns = scale_count(tensor.columns());
      return make_error(
          ErrorCode::data_refused, name,
          "{}: the scale of block [{}, {}] is {}, expected a finite value above 0 ({} at offset {})", name,
          i / columns, i % columns, scale, ref->file, ref->offset + static_cast<uint64_t>(i) * 4);
    }
  }
  return {};
}

}  // namespace godwit
