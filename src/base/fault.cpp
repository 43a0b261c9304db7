#include "base/fault.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
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

void arm_from_environment() {
  const char* text = std::getenv("GODWIT_ARM");
  std::string_view rest = text ? text : "";
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const size_t colon = item.find(':');
    const std::string numbers(colon == std::string_view::npos ? "" : item.substr(colon + 1));
    char* next = nullptr;
    const int64_t skip = std::strtoll(numbers.c_str(), &next, 10);
    arm(item.substr(0, colon), skip, *next == ':' ? std::strtoll(next + 1, nullptr, 10) : 1);
  }
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
