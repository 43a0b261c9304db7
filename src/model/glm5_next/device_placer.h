// DevicePlacer: what was read of a checkpoint goes to a backend's memory.
#pragma once

#include <memory>
#include <vector>

#include "kernels/ops.h"
#include "weights/direct_reader.h"

namespace godwit::model {

// A staging a thread, so that its next read runs while the copies of the last one are on their way.
class DevicePlacer final : public Placer {
 public:
  DevicePlacer(kernels::Memory& memory, int threads) {
    for (int t = 0; t < threads; ++t) stagings_.push_back(memory.staging(static_cast<int64_t>(kReadBytes)));
  }

  std::byte* buffer(int thread) override { return of(thread).next(); }
  void place(int thread, const ReadRows& rows, const std::byte* from) override {
    of(thread).send(rows.to, from, static_cast<int64_t>(rows.row_bytes), static_cast<int64_t>(rows.rows),
                    static_cast<int64_t>(rows.stride));
  }
  void finish(int thread) override { of(thread).finish(); }

 private:
  kernels::Staging& of(int thread) { return *stagings_[static_cast<size_t>(thread)]; }
  std::vector<std::unique_ptr<kernels::Staging>> stagings_;
};

}  // namespace godwit::model
