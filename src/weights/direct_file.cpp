#include "weights/direct_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/fault.h"
#include "weights/read_list.h"

namespace godwit {
namespace {

// What a device may do to a read is tried by arming these: an interrupt, an error, a read that stops early.
ssize_t read_some(int fd, std::byte* to, size_t bytes, uint64_t offset) {
  if (GODWIT_FAULT("weights.interrupted")) return errno = EINTR, -1;
  if (GODWIT_FAULT("weights.io_error")) return errno = EIO, -1;
  if (GODWIT_FAULT("weights.short_read")) bytes = std::min<size_t>(bytes, kReadAlign);
  return ::pread(fd, to, bytes, static_cast<off_t>(offset));
}

int open_direct(const char* path, int flags) {
  if (GODWIT_FAULT("weights.no_direct")) return errno = EINVAL, -1;
  return ::open(path, flags | O_DIRECT);
}

}  // namespace

Result<DirectFile> DirectFile::open(const std::filesystem::path& path, const FileStamp& expected) {
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
  DirectFile file(path, expected);
  file.fd_ = open_direct(path.c_str(), kFlags);
  if (file.fd_ < 0 && errno == EINVAL) {
    file.direct_ = false;
    file.fd_ = ::open(path.c_str(), kFlags);
  }
  if (file.fd_ < 0) {
    return make_error(ErrorCode::data_refused, path.filename(), "{}: {}", path.string(),
                      std::strerror(errno));
  }
  GODWIT_TRY(file.check_unchanged());
  return file;
}

DirectFile::DirectFile(DirectFile&& other) noexcept
    : path_(std::move(other.path_)),
      expected_(other.expected_),
      fd_(std::exchange(other.fd_, -1)),
      direct_(other.direct_.load()) {}

DirectFile::~DirectFile() {
  if (fd_ >= 0) ::close(fd_);
}

Result<void> DirectFile::check_unchanged() const {
  struct stat status {};
  if (::fstat(fd_, &status) == 0 && S_ISREG(status.st_mode) && FileStamp::of(status) == expected_) return {};
  return make_error(ErrorCode::data_refused, path_.filename(),
                    "{}: the file has changed since its header was read ({} bytes then, {} now); start again "
                    "when nothing writes to it",
                    path_.string(), expected_.size, status.st_size);
}

Result<void> DirectFile::read(uint64_t offset, uint64_t bytes, std::byte* to) {
  GODWIT_ASSERT(offset % kReadAlign == 0 && reinterpret_cast<uintptr_t>(to) % kReadAlign == 0);
  uint64_t done = 0;
  bool gave_up_direct = false;
  while (done < bytes) {
    const uint64_t rest = (bytes - done + kReadAlign - 1) / kReadAlign * kReadAlign;
    const ssize_t n = read_some(fd_, to + done, rest, offset + done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EINVAL && !gave_up_direct) {  // some file systems open it and refuse then
      ::fcntl(fd_, F_SETFL, ::fcntl(fd_, F_GETFL) & ~O_DIRECT);
      direct_ = false;
      gave_up_direct = true;
      continue;
    }
    if (n < 0) {
      return make_error(ErrorCode::data_refused, path_.filename(), "{}: reading {} bytes at offset {}: {}",
                        path_.string(), rest, offset + done, std::strerror(errno));
    }
    const auto got = static_cast<uint64_t>(n);
    if (done + got >= bytes) return {};
    // Only the end of the file, which comes too early, stops a read inside a block.
    if (got < kReadAlign) {
      return make_error(ErrorCode::data_refused, path_.filename(),
                        "{}: ends at offset {} although its header says that {} bytes follow (truncated?)",
                        path_.string(), offset + done + got, bytes - done - got);
    }
    done += got / kReadAlign * kReadAlign;
  }
  return {};
}

}  // namespace godwit
