#include "tensor/tensor.h"

#include <cstdlib>
#include <new>

namespace godwit {

Buffer::Buffer(size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  void* p = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (!p) throw std::bad_alloc();
  memory_.reset(p);
}

void Buffer::Free::operator()(void* p) const {
  std::free(p);
}

}  // namespace godwit
