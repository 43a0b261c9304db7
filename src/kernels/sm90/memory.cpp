#include "kernels/sm90/memory.h"

#include <fmt/core.h>

#include <cstring>
#include <new>

#include "base/log.h"
#include "kernels/sm90/staging.h"

namespace godwit::sm90 {

namespace {

constexpr int64_t kPinnedBytes = 1 << 20;

}  // namespace

void fatal(const char* op, cudaError_t error) {
  throw DeviceFailure(
      fmt::format("CUDA failed in {}: {} ({})", op, cudaGetErrorString(error), cudaGetErrorName(error)));
}

Device::Device(int device) : device_(device) {
  check(cudaSetDevice(device), "cudaSetDevice");
  check(cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, device), "device");
  check(cudaDeviceGetAttribute(&major_, cudaDevAttrComputeCapabilityMajor, device), "device");
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
}

Device::~Device() {
  if (stream_) cudaStreamDestroy(stream_);
}

cudaError_t Device::try_bind() const {
  thread_local int bound = -1;
  if (bound == device_) return cudaSuccess;
  const cudaError_t error = cudaSetDevice(device_);
  if (error == cudaSuccess) bound = device_;
  return error;
}

void Device::bind() const {
  check(try_bind(), "cudaSetDevice");
}

cudaStream_t Device::stream() const {
  bind();
  return stream_;
}

DeviceMemory::DeviceMemory(const Device& device) : device_(device) {
  check(cudaMallocHost(&pinned_, kPinnedBytes), "cudaMallocHost");
}

DeviceMemory::~DeviceMemory() {
  cudaFreeHost(pinned_);
}

void* DeviceMemory::allocate(int64_t bytes) {
  device_.bind();
  void* p = nullptr;
  const cudaError_t error = cudaMalloc(&p, static_cast<size_t>(bytes > 0 ? bytes : 1));
  if (error == cudaErrorMemoryAllocation) throw std::bad_alloc();
  check(error, "cudaMalloc");
  return p;
}

// Called by destructors, so a device that has failed is told, once, and no more.
void DeviceMemory::release(void* p) {
  cudaError_t error = device_.try_bind();
  if (error == cudaSuccess) error = cudaStreamSynchronize(device_.stream());
  if (error == cudaSuccess) error = cudaFree(p);
  if (error != cudaSuccess && !told_.exchange(true))
    log_error("device memory was not released: {}", cudaGetErrorString(error));
}

int64_t DeviceMemory::available() const {
  device_.bind();
  size_t free_bytes = 0, total_bytes = 0;
  check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  return static_cast<int64_t>(free_bytes);
}

int64_t DeviceMemory::size() const {
  device_.bind();
  size_t free_bytes = 0, total_bytes = 0;
  check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  return static_cast<int64_t>(total_bytes);
}

std::unique_ptr<kernels::Staging> DeviceMemory::staging(int64_t bytes) {
  return std::make_unique<DeviceStaging>(device_, bytes);
}

void DeviceMemory::upload(void* to, const void* from_host, int64_t bytes) {
  if (bytes == 0) return;
  writes_.fetch_add(1, std::memory_order_relaxed);
  check(cudaMemcpyAsync(to, from_host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, device_.stream()),
        "upload");
}

void DeviceMemory::download(void* to_host, const void* from, int64_t bytes) {
  if (bytes == 0) return;
  void* to = bytes <= kPinnedBytes ? pinned_ : to_host;
  check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, device_.stream()),
        "download");
  check(cudaStreamSynchronize(device_.stream()), "download");
  if (to != to_host) std::memcpy(to_host, to, static_cast<size_t>(bytes));
}

void DeviceMemory::copy(void* to, const void* from, int64_t bytes) {
  if (bytes == 0) return;
  writes_.fetch_add(1, std::memory_order_relaxed);
  check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, device_.stream()),
        "copy");
}

void DeviceMemory::zero(void* p, int64_t bytes) {
  if (bytes == 0) return;
  writes_.fetch_add(1, std::memory_order_relaxed);
  check(cudaMemsetAsync(p, 0, static_cast<size_t>(bytes), device_.stream()), "zero");
}

}  // namespace godwit::sm90
