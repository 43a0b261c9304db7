// A file mapped read-only into memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string_view>

#include "base/result.h"

struct stat;

namespace godwit {

// What tells one state of a file from another: a header read from one must not be used with the data of
// the other.
struct FileStamp {
  uint64_t device = 0, inode = 0, size = 0;
  int64_t modified_ns = 0;

  static FileStamp of(const struct stat& status);
  bool operator==(const FileStamp&) const = default;
};

class MappedFile {
 public:
  // data_refused, naming the path, when it cannot be opened or is no regular file. Never waits for a pipe.
  static Result<MappedFile> open(const std::filesystem::path& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  const std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  const FileStamp& stamp() const { return stamp_; }  // when it was opened
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }

 private:
  MappedFile() = default;
  const std::byte* data_ = nullptr;  // nullptr for an empty file
  size_t size_ = 0;
  FileStamp stamp_;
};

}  // namespace godwit
