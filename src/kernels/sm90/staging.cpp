#include "kernels/sm90/staging.h"

#include <sys/mman.h>

#include <new>

#include "base/log.h"

namespace godwit::sm90 {

DeviceStaging::DeviceStaging(const Device& device, int64_t bytes)
    : device_(device), bytes_(static_cast<size_t>(bytes)) {
  device_.bind();
  try {
    for (Side& side : sides_) open(side);
  } catch (...) {
    for (Side& side : sides_) close(side);
    throw;
  }
}

DeviceStaging::~DeviceStaging() {
  for (Side& side : sides_) close(side);
}

void DeviceStaging::open(Side& side) {
  void* p = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  side.buffer = static_cast<std::byte*>(p);
  check(cudaStreamCreateWithFlags(&side.stream, cudaStreamNonBlocking), "cudaStreamCreate");
  const cudaError_t error = cudaHostRegister(side.buffer, bytes_, cudaHostRegisterDefault);
  side.locked = error == cudaSuccess;
  if (side.locked) return;
  // The same copies are right from memory that is not locked, and slower.
  static_cast<void>(cudaGetLastError());
  log_warn("{} bytes of host memory could not be locked for uploads ({}); loading takes longer", bytes_,
           cudaGetErrorString(error));
}

// A device that has failed is told by others.
void DeviceStaging::close(Side& side) {
  if (side.stream) {
    cudaStreamSynchronize(side.stream);
    cudaStreamDestroy(side.stream);
  }
  if (side.locked) cudaHostUnregister(side.buffer);
  if (side.buffer) ::munmap(side.buffer, bytes_);
  side = {};
}

std::byte* DeviceStaging::next() {
  device_.bind();
  newest_ = 1 - newest_;
  check(cudaStreamSynchronize(sides_[newest_].stream), "upload");
  return sides_[newest_].buffer;
}

void DeviceStaging::send(void* to, const std::byte* from, int64_t row_bytes, int64_t rows, int64_t stride) {
  const Side& side = sides_[newest_];
  const auto width = static_cast<size_t>(row_bytes), height = static_cast<size_t>(rows);
  if (width == 0 || height == 0) return;
  if (height == 1 || stride == row_bytes) {
    check(cudaMemcpyAsync(to, from, width * height, cudaMemcpyHostToDevice, side.stream), "upload");
  } else {
    check(cudaMemcpy2DAsync(to, width, from, static_cast<size_t>(stride), width, height,
                            cudaMemcpyHostToDevice, side.stream),
          "upload of rows");
  }
}

void DeviceStaging::finish() {
  device_.bind();
  for (const Side& side : sides_) check(cudaStreamSynchronize(side.stream), "upload");
}

}  // namespace godwit::sm90
