// Staging: host memory that parts of a checkpoint are read into, and the way from there to a backend's
// memory. Loading only; one thread uses one of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace godwit::kernels {

class Memory;

class Staging {
 public:
  virtual ~Staging() = default;  // what is on its way may be lost: finish() first

  // The buffer whose turn it is, aligned for direct reads. Waits until what was sent from it has arrived.
  virtual std::byte* next() = 0;
  // `rows` pieces of `row_bytes`, `stride` bytes apart in the newest buffer, packed to `to` in the backend's
  // memory. May return before they have arrived.
  virtual void send(void* to, const std::byte* from, int64_t row_bytes, int64_t rows, int64_t stride) = 0;
  // Waits until everything has arrived.
  virtual void finish() = 0;
};

// One buffer that is free again when send() returns, by way of Memory::upload: where the host addresses the
// memory, or nothing overlaps.
std::unique_ptr<Staging> make_plain_staging(Memory& memory, int64_t bytes);

}  // namespace godwit::kernels
