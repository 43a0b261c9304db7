// A file read past the page cache (O_DIRECT), or through it where the file system refuses that.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>

#include "base/result.h"
#include "weights/mapped_file.h"

namespace godwit {

class DirectFile {
 public:
  // `expected`: as it was when its header was read. data_refused, naming the path, when it cannot be opened,
  // is no regular file or is not that one any more.
  static Result<DirectFile> open(const std::filesystem::path& path, const FileStamp& expected);

  DirectFile(DirectFile&& other) noexcept;
  DirectFile& operator=(DirectFile&&) = delete;
  ~DirectFile();

  // Bytes [offset, offset + bytes) of the file to `to`. Offset and `to` are multiples of kReadAlign, and `to`
  // has room for `bytes` rounded up to one. Callable from several threads at once. data_refused, naming file
  // and offset, when the disk fails or the file ends too early.
  Result<void> read(uint64_t offset, uint64_t bytes, std::byte* to);
  // Whether it is still the expected file; call it after the last read.
  Result<void> check_unchanged() const;
  bool is_direct() const { return direct_; }

 private:
  DirectFile(std::filesystem::path path, const FileStamp& expected)
      : path_(std::move(path)), expected_(expected) {}
  std::filesystem::path path_;
  FileStamp expected_;
  int fd_ = -1;
  std::atomic<bool> direct_{true};
};

}  // namespace godwit
