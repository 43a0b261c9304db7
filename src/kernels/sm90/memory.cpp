#include "kernels/sm90/memory.h"

#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>

namespace godwit::sm90 {

void fatal(const char* op, cudaError_t error) {
  fmt::print(stderr, "godwit: CUDA failed in {}: {} ({}); the engine cannot go on\n", op,
             cudaGetErrorString(error), cudaGetErrorName(error));
  std::fflush(stderr);
  std::abort();
}

Device::Device(int device) : device_(device) {
  check(cudaSetDevice(device), "cudaSetDevice");
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
}

Device::~Device() {
  if (stream_) cudaStreamDestroy(stream_);
}

cudaStream_t Device::stream() const {
  thread_local int bound = -1;
  if (bound != device_) {
    check(cudaSetDevice(device_), "cudaSetDevice");
    bound = device_;
  }
  return stream_;
}

void* DeviceMemory::allocate(int64_t bytes) {
  static_cast<void>(device_.stream());
  void* p = nullptr;
  check(cudaMalloc(&p, static_cast<size_t>(bytes > 0 ? bytes : 1)), "cudaMalloc");
  return p;
}

void DeviceMemory::release(void* p) {
  check(cudaStreamSynchronize(device_.stream()), "release");
  check(cudaFree(p), "cudaFree");
}

void DeviceMemory::upload(void* to, const void* from_host, int64_t bytes) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to, from_host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, device_.stream()),
        "upload");
}

void DeviceMemory::download(void* to_host, const void* from, int64_t bytes) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to_host, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, device_.stream()),
        "download");
  check(cudaStreamSynchronize(device_.stream()), "download");
}

void DeviceMemory::copy(void* to, const void* from, int64_t bytes) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, device_.stream()),
        "copy");
}

void DeviceMemory::zero(void* p, int64_t bytes) {
  if (bytes == 0) return;
  check(cudaMemsetAsync(p, 0, static_cast<size_t>(bytes), device_.stream()), "zero");
}

}  // namespace godwit::sm90
