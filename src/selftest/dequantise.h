// A float32 copy of an FP8 checkpoint: value = e4m3 * block scale, one float32 product.
#pragma once

#include <filesystem>

#include "base/result.h"

namespace godwit::selftest {

Result<void> write_dequantised(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace godwit::selftest
