// One safetensors file: 8 bytes of header length (little endian), a JSON header, then the data the header
// divides among its tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/dtype.h"
#include "weights/mapped_file.h"

namespace godwit {

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  uint64_t offset = 0;  // from the start of the file
  uint64_t bytes = 0;   // product of shape x element size
};

// Checks a whole file image and lists its tensors in order of offset. Refused (data_refused, naming `file`,
// tensor and offset): a header longer than the file or 100 MB, more than 250,000 tensors, more than 8
// dimensions, an unknown dtype, a size that is not shape x dtype, ranges that overlap, leave a hole or pass
// the end of the file.
Result<std::vector<SafetensorsEntry>> parse_safetensors(std::string_view image, std::string_view file);

class SafetensorsFile {
 public:
  static Result<SafetensorsFile> open(const std::filesystem::path& path);

  const std::string& name() const { return name_; }  // file name without directories
  const std::filesystem::path& path() const { return path_; }
  const FileStamp& stamp() const { return mapping_.stamp(); }  // of the file whose header was read
  const std::vector<SafetensorsEntry>& entries() const { return entries_; }
  const std::byte* data() const { return mapping_.data(); }  // of the whole file, header and all
  const std::byte* data(const SafetensorsEntry& entry) const { return mapping_.data() + entry.offset; }

 private:
  explicit SafetensorsFile(MappedFile mapping) : mapping_(std::move(mapping)) {}
  std::string name_;
  std::filesystem::path path_;
  MappedFile mapping_;
  std::vector<SafetensorsEntry> entries_;
};

}  // namespace godwit
