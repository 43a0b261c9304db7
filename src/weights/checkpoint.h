// A checkpoint directory: every tensor of all its safetensors files by name, mapped, nothing copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/dtype.h"

namespace godwit {

class SafetensorsFile;

// One tensor in a mapped file. Valid as long as its Checkpoint lives. `data` need not be aligned for `dtype`:
// use weights/load.h to read it.
struct TensorRef {
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;
  uint64_t bytes = 0;
  uint64_t offset = 0;      // of data in its file
  std::string_view file;    // file name, for messages
  uint32_t file_index = 0;  // Checkpoint::file()

  int64_t elements() const;  // product of shape; 1 for a scalar
};

class Checkpoint {
 public:
  // Reads DIR/model.safetensors.index.json and the files it names, or the single DIR/model.safetensors.
  // Refused (data_refused, naming file, tensor and offset): a file missing or truncated, a header that lies,
  // an index and files that disagree on a tensor in either direction, a tensor in two files.
  static Result<Checkpoint> open(const std::filesystem::path& dir);

  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  const TensorRef* find(std::string_view name) const;  // nullptr when there is none
  const std::map<std::string, TensorRef, std::less<>>& tensors() const { return tensors_; }
  uint64_t tensor_bytes() const { return tensor_bytes_; }  // of all tensors, without headers
  size_t file_count() const { return files_.size(); }
  const SafetensorsFile& file(size_t index) const { return *files_[index]; }

 private:
  Checkpoint();
  Result<void> add_file(const std::filesystem::path& path);

  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, TensorRef, std::less<>> tensors_;
  uint64_t tensor_bytes_ = 0;
};

}  // namespace godwit
