#include "engine/resident.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

#include "engine/ledger_lines.h"
#include "weights/direct_reader.h"
#include "weights/finite.h"
#include "weights/safetensors.h"

namespace godwit::engine {
namespace {

constexpr int64_t kUnknown = std::numeric_limits<int64_t>::max();

// The number in the first line of a control-group file; kUnknown for "max" or no file.
int64_t group_value(const char* path) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? value : kUnknown;
}

int64_t machine_available() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  int64_t kibibytes = 0;
  for (std::string unit; file >> key >> kibibytes;) {
    if (key == "MemAvailable:") return kibibytes * 1024;
    std::getline(file, unit);
  }
  return kUnknown;
}

uintptr_t page_size() {
  return static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
}

// Of the pages that the tensor has for itself.
void let_go(const TensorRef& tensor) {
  const auto address = reinterpret_cast<uintptr_t>(tensor.data);
  const uintptr_t begin = (address + page_size() - 1) / page_size() * page_size();
  const uintptr_t end = (address + tensor.bytes) / page_size() * page_size();
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

Result<void> read_in(const SafetensorsFile& file, const ReadChunk& chunk) {
  const auto address = reinterpret_cast<uintptr_t>(file.data() + chunk.offset);
  const uintptr_t begin = address / page_size() * page_size();
  const uintptr_t end = address + chunk.bytes;
  if (madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_READ) == 0) return {};
  if (errno == EINVAL) {  // a kernel before 5.14
    for (uintptr_t at = begin; at < end; at += page_size())
      static_cast<void>(*reinterpret_cast<const volatile std::byte*>(at));
    return {};
  }
  return make_error(ErrorCode::data_refused, file.name(), "{}: reading {} bytes at offset {}: {}",
                    file.path().string(), chunk.bytes, chunk.offset,
                    errno == EFAULT ? "the disk fails, or the file is shorter now" : std::strerror(errno));
}

Slice whole(const TensorRef& tensor) {
  const int64_t rows = tensor.shape.empty() ? 1 : tensor.shape[0];
  return {{0, rows}, {0, rows == 0 ? 0 : tensor.elements() / rows}};
}

}  // namespace

int64_t available_memory() {
  int64_t least = machine_available();
  const int64_t limit = group_value("/sys/fs/cgroup/memory.max");
  const int64_t used = group_value("/sys/fs/cgroup/memory.current");
  if (limit != kUnknown && used != kUnknown) least = std::min(least, std::max<int64_t>(0, limit - used));
  return least == kUnknown ? 0 : least;
}

Result<ReadStatus> read_ahead(const Checkpoint& checkpoint, const std::vector<TensorSpec>& inventory,
                              ReadIn read, const ReadOptions& options) {
  ReadList list;
  for (const TensorSpec& spec : inventory) {
    const TensorRef* tensor = checkpoint.find(spec.name);
    if (!tensor) continue;
    if (read == ReadIn::what_stays || !is_in_place(spec)) list.add(*tensor, whole(*tensor), nullptr);
    if (const TensorRef* scales = checkpoint.find(scale_name(spec.name)))
      list.add(*scales, whole(*scales), nullptr);
  }
  return work_off(list.chunks(kReadBytes), options,
                  [&](int, const ReadChunk& chunk) { return read_in(checkpoint.file(chunk.file), chunk); });
}

Result<void> settle_weights(const Checkpoint& checkpoint, const std::vector<TensorSpec>& inventory,
                            ReadIn read) {
  for (const TensorSpec& spec : inventory) {
    const TensorRef* tensor = checkpoint.find(spec.name);
    if (!tensor) continue;
    if (read == ReadIn::what_stays) GODWIT_TRY(check_finite(spec.name, *tensor));
    if (read == ReadIn::nothing || !is_in_place(spec)) let_go(*tensor);
  }
  return {};
}

}  // namespace godwit::engine
