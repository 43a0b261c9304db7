// A backend's memory that the host cannot address, for tests without a device.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <map>

#include "kernels/ops.h"

namespace godwit::model {

// Host memory that pretends to be a device's.
class FarMemory final : public kernels::Memory {
 public:
  explicit FarMemory(bool addressable = false) : addressable_(addressable) {}
  void* allocate(int64_t bytes) override {
    Buffer b(static_cast<size_t>(bytes));
    std::memset(b.data(), 0xff, b.bytes());
    void* p = b.data();
    buffers_.emplace(p, std::move(b));
    return p;
  }
  void release(void* p) override { EXPECT_EQ(buffers_.erase(p), 1u); }
  void upload(void* to, const void* from, int64_t bytes) override {  // from several threads while loading
    ++uploads;
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void download(void* to, const void* from, int64_t bytes) override { copy(to, from, bytes); }
  void copy(void* to, const void* from, int64_t bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void zero(void* p, int64_t bytes) override { std::memset(p, 0, static_cast<size_t>(bytes)); }
  bool host_addressable() const override { return addressable_; }

  size_t allocations() const { return buffers_.size(); }
  std::atomic<int> uploads{0};

 private:
  bool addressable_;
  std::map<void*, Buffer> buffers_;
};

}  // namespace godwit::model
