// Arena: allocations in a backend's memory that live as long as their owner, and host data placed there. On a
// backend that can address the host, what is placed stays where it is.
#pragma once

#include <type_traits>
#include <vector>

#include "kernels/ops.h"

namespace godwit::model {

// Small tensors share device allocations of this size: one each costs far more than a small tensor.
constexpr int64_t kSlabBytes = int64_t{32} << 20;

class Arena {
 public:
  explicit Arena(kernels::Memory& memory) : memory_(memory) {}
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  kernels::Memory& memory() const { return memory_; }
  bool in_place() const { return memory_.host_addressable(); }

  // 256-byte aligned on a device; contents undefined.
  std::byte* take(int64_t bytes);
  template <class T>
  T* take_array(int64_t count) {
    return static_cast<T*>(static_cast<void*>(take(count * static_cast<int64_t>(sizeof(T)))));
  }
  // `bytes` at `host`, or a copy in the backend's memory.
  const void* place(const void* host, int64_t bytes);
  template <class T>
  const T* place_array(const T* host, int64_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    return static_cast<const T*>(place(host, count * static_cast<int64_t>(sizeof(T))));
  }
  // The same values; rows are packed when they are copied.
  View place(const View& host);
  // Room for the same values and scales, packed, contents undefined; `host` itself where it stays.
  Weight room_for(const Weight& host);

 private:
  struct Rest {  // of a slab
    std::byte* at = nullptr;
    int64_t bytes = 0;
  };
  kernels::Memory& memory_;
  std::vector<void*> owned_;
  std::vector<Rest> rests_;
};

}  // namespace godwit::model
