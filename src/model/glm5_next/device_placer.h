// DevicePlacer: what was read of a checkpoint goes to a backend's memory.
#pragma once

#include <vector>

#include "kernels/ops.h"
#include "weights/direct_reader.h"

namespace godwit::model {

// Uploads from pageable buffers: the driver has copied them aside when upload() returns, so the next read may
// overwrite them. Several threads upload at once.
class DevicePlacer final : public Placer {
 public:
  DevicePlacer(kernels::Memory& memory, int threads)
      : memory_(memory), buffers_(threads), packed_(static_cast<size_t>(threads)) {}

  std::byte* buffer(int thread) override { return buffers_.buffer(thread); }
  void place(int thread, const ReadRows& rows, const std::byte* from) override {
    if (rows.rows > 1) {  // one upload, not one a row
      Buffer& packed = packed_[static_cast<size_t>(thread)];
      if (packed.bytes() < rows.bytes()) packed = Buffer(rows.bytes());
      pack_rows(rows, from, packed.as<std::byte>());
      from = packed.as<std::byte>();
    }
    memory_.upload(rows.to, from, static_cast<int64_t>(rows.bytes()));
  }

 private:
  kernels::Memory& memory_;
  HostPlacer buffers_;
  std::vector<Buffer> packed_;
};

}  // namespace godwit::model
