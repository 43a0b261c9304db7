#include "kernels/reference/reference_ops.h"

#include <cstdlib>
#include <cstring>
#include <new>

namespace godwit::kernels {
namespace reference {
namespace {

class HostMemory final : public Memory {
 public:
  void* allocate(int64_t bytes) override {
    void* p = std::aligned_alloc(64, static_cast<size_t>((bytes + 63) / 64 * 64));
    if (!p) throw std::bad_alloc();
    return p;
  }
  void release(void* p) override { std::free(p); }
  void upload(void* to, const void* from, int64_t bytes) override { copy(to, from, bytes); }
  void download(void* to, const void* from, int64_t bytes) override { copy(to, from, bytes); }
  void copy(void* to, const void* from, int64_t bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void zero(void* p, int64_t bytes) override { std::memset(p, 0, static_cast<size_t>(bytes)); }
  bool host_addressable() const override { return true; }
};

}  // namespace

ReferenceOps::ReferenceOps() : memory_(std::make_unique<HostMemory>()) {}

Result<void> ReferenceOps::prepare(const Dims&, const StepLimits&) {
  return {};
}

}  // namespace reference

std::unique_ptr<Ops> make_reference_ops() {
  return std::make_unique<reference::ReferenceOps>();
}

}  // namespace godwit::kernels
