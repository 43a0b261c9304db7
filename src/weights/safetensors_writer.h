// Writes safetensors files: the counterpart of safetensors.h, for tools and tests.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/result.h"
#include "weights/safetensors.h"

namespace godwit {

// Declares all tensors first, then takes their bytes one by one, so that only one has to be in memory.
class SafetensorsWriter {
 public:
  // `entries` need name, dtype and shape; offsets and sizes are filled in. Data goes into the file in the
  // order of entries(): elements of wide types first, so that every tensor is aligned, then by name.
  static Result<SafetensorsWriter> create(const std::filesystem::path& path,
                                          std::vector<SafetensorsEntry> entries);

  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  // The bytes of the next entry; data_refused when there are too few or too many, or the disk is full.
  Result<void> write(std::string_view bytes);
  Result<void> finish();

 private:
  SafetensorsWriter() = default;
  std::filesystem::path path_;
  std::ofstream file_;
  std::vector<SafetensorsEntry> entries_;
  size_t next_ = 0;
};

}  // namespace godwit
