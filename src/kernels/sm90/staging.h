// Uploads that overlap with reading: page-locked buffers, each with a stream of its own; loading only.
#pragma once

#include <array>

#include "kernels/sm90/memory.h"
#include "kernels/staging.h"

namespace godwit::sm90 {

// Two buffers in turn, so that a disk never waits for the bus: while one is read into, the copies from the
// other are on their way. The memory is mapped here and then locked, not taken from CUDA: direct reads need
// pages that the kernel can pin once more.
class DeviceStaging final : public kernels::Staging {
 public:
  DeviceStaging(const Device& device, int64_t bytes);
  ~DeviceStaging() override;

  std::byte* next() override;
  void send(void* to, const std::byte* from, int64_t row_bytes, int64_t rows, int64_t stride) override;
  void finish() override;

 private:
  struct Side {
    std::byte* buffer = nullptr;
    bool locked = false;
    cudaStream_t stream = nullptr;
  };
  void open(Side& side);
  void close(Side& side);

  const Device& device_;
  size_t bytes_;
  std::array<Side, 2> sides_;
  size_t newest_ = 0;
};

}  // namespace godwit::sm90
