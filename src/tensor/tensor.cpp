#include "tensor/tensor.h"

#include <cstdlib>
#include <new>

namespace godwit {

void* allocate_present(size_t bytes) {
  constexpr size_t kSmallestPage = 4096;
  void* p = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (!p) throw std::bad_alloc();
  for (size_t at = 0; at < bytes; at += kSmallestPage) static_cast<volatile char*>(p)[at] = 0;
  return p;
}

Buffer::Buffer(size_t bytes) : bytes_(bytes) {
  if (bytes > 0) memory_.reset(allocate_present(bytes));
}

void Buffer::Free::operator()(void* p) const {
  std::free(p);
}

}  // namespace godwit
