#include "base/fault.h"

#include <atomic>
#include <map>
#include <mutex>

namespace godwit::fault {
namespace {

struct Armed {
  int64_t skip;
  int64_t times;
};

std::mutex mutex;
std::map<std::string, Armed, std::less<>> points;
std::atomic<bool> any{false};  // keeps an unarmed fault point at one relaxed load

}  // namespace

void arm(std::string_view name, int64_t skip, int64_t times) {
  std::lock_guard lock(mutex);
  points[std::string(name)] = {skip, times};
  any = true;
}

void disarm_all() {
  std::lock_guard lock(mutex);
  points.clear();
  any = false;
}

bool hit(std::string_view name) {
  if (!any.load(std::memory_order_relaxed)) return false;
  std::lock_guard lock(mutex);
  auto it = points.find(name);
  if (it == points.end()) return false;
  if (it->second.skip-- > 0) return false;
  if (it->second.times == 0) return false;
  if (it->second.times > 0) --it->second.times;
  return true;
}

}  // namespace godwit::fault
