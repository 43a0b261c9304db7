// Device memory behind kernels::Memory. Everything is ordered on the stream of the ops, so a step needs no
// more than one wait: the download of its result.
#pragma once

#include <atomic>

#include "kernels/ops.h"
#include "kernels/sm90/check.h"

namespace godwit::sm90 {

// The device and its one stream. A thread that calls in is bound to the device first.
class Device {
 public:
  explicit Device(int device);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  cudaStream_t stream() const;
  void bind() const;  // the calling thread
  cudaError_t try_bind() const;
  int multiprocessors() const { return multiprocessors_; }
  bool is_hopper() const { return major_ == 9; }  // has warpgroup products (device/warpgroup.cuh)

 private:
  int device_;
  int multiprocessors_ = 0, major_ = 0;
  cudaStream_t stream_ = nullptr;
};

class DeviceMemory final : public kernels::Memory {
 public:
  explicit DeviceMemory(const Device& device);
  ~DeviceMemory() override;

  void* allocate(int64_t bytes) override;
  void release(void* p) override;
  // The source may be reused when it returns: it is pageable memory, which the driver copies aside first.
  void upload(void* to, const void* from_host, int64_t bytes) override;
  // Waits for the stream. What fits goes through pinned memory, as the draws of a step do.
  void download(void* to_host, const void* from, int64_t bytes) override;
  void copy(void* to, const void* from, int64_t bytes) override;
  void zero(void* p, int64_t bytes) override;
  bool host_addressable() const override { return false; }
  int64_t available() const override;
  int64_t size() const override;
  std::unique_ptr<kernels::Staging> staging(int64_t bytes) override;
  // How often the contents of memory were set from outside the ops.
  int64_t writes() const { return writes_.load(std::memory_order_relaxed); }

 private:
  const Device& device_;
  void* pinned_ = nullptr;
  std::atomic<int64_t> writes_ = 0;
  std::atomic<bool> told_ = false;
};

}  // namespace godwit::sm90
