// A file mapped read-only into memory.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string_view>

#include "base/result.h"

namespace godwit {

class MappedFile {
 public:
  // data_refused, naming the path, when it cannot be opened or is no regular file.
  static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  MappedFile() = default;
  const std::byte* data_ = nullptr;  // nullptr for an empty file
  size_t size_ = 0;
};

}  // namespace godwit
