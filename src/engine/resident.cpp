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
#include "weights/finite.h"

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

// Whole pages around the tensor, or only those that it has for itself.
enum class Edges { shared, own };

int advise(const TensorRef& tensor, Edges edges, int advice) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  uintptr_t begin = reinterpret_cast<uintptr_t>(tensor.data);
  uintptr_t end = begin + tensor.bytes;
  if (edges == Edges::shared) {
    begin = begin / page * page;
    end = (end + page - 1) / page * page;
  } else {
    begin = (begin + page - 1) / page * page;
    end = end / page * page;
  }
  if (begin >= end) return 0;
  return madvise(reinterpret_cast<void*>(begin), end - begin, advice) == 0 ? 0 : errno;
}

Result<void> read_in(const std::string& name, const TensorRef& tensor) {
  int failure = advise(tensor, Edges::shared, MADV_POPULATE_READ);
  if (failure == EINVAL) {  // a kernel before 5.14
    failure = 0;
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    for (uint64_t at = 0; at < tensor.bytes; at += page)
      static_cast<void>(*static_cast<const volatile std::byte*>(tensor.data + at));
  }
  if (failure == 0) return {};
  return make_error(ErrorCode::data_refused, name, "{}: tensor {} at offset {} cannot be read: {}",
                    tensor.file, name, tensor.offset, std::strerror(failure));
}

}  // namespace

int64_t available_memory() {
  int64_t least = machine_available();
  const int64_t limit = group_value("/sys/fs/cgroup/memory.max");
  const int64_t used = group_value("/sys/fs/cgroup/memory.current");
  if (limit != kUnknown && used != kUnknown) least = std::min(least, std::max<int64_t>(0, limit - used));
  return least == kUnknown ? 0 : least;
}

Result<void> settle_weights(const Checkpoint& checkpoint, const std::vector<TensorSpec>& inventory,
                            ReadIn read) {
  for (const TensorSpec& spec : inventory) {
    const TensorRef* tensor = checkpoint.find(spec.name);
    if (!tensor || (read == ReadIn::what_stays && is_in_place(spec))) continue;
    if (read == ReadIn::what_stays) GODWIT_TRY(check_finite(spec.name, *tensor));
    advise(*tensor, Edges::own, MADV_DONTNEED);
  }
  if (read == ReadIn::nothing) return {};
  for (const TensorSpec& spec : inventory) {
    const TensorRef* tensor = checkpoint.find(spec.name);
    if (!tensor || !is_in_place(spec)) continue;
    GODWIT_TRY(read_in(spec.name, *tensor));
    GODWIT_TRY(check_finite(spec.name, *tensor));
    const std::string scales = scale_name(spec.name);
    if (const TensorRef* found = checkpoint.find(scales)) GODWIT_TRY(read_in(scales, *found));
  }
  return {};
}

}  // namespace godwit::engine
