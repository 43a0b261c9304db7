#include "weights/finite.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace godwit {
namespace {

template <class Word>
Word word_at(const std::byte* data, int64_t i) {
  Word word;
  std::memcpy(&word, data + i * static_cast<int64_t>(sizeof word), sizeof word);
  return word;
}

// The first word whose bits of `mask` are all ones, or `count`.
template <class Word>
int64_t first_with(const std::byte* data, int64_t count, Word mask) {
  constexpr int64_t kRun = 4096;  // looked at without a branch
  for (int64_t begin = 0; begin < count; begin += kRun) {
    const int64_t end = std::min(count, begin + kRun);
    Word hits = 0;
    for (int64_t i = begin; i < end; ++i)
      hits = static_cast<Word>(hits | ((word_at<Word>(data, i) & mask) == mask));
    if (hits == 0) continue;
    for (int64_t i = begin; i < end; ++i)
      if ((word_at<Word>(data, i) & mask) == mask) return i;
  }
  return count;
}

// Exponents of all ones; for e4m3, which has no infinities, only with a mantissa of all ones.
int64_t first_not_finite(const TensorRef& tensor, int64_t count) {
  switch (tensor.dtype) {
    case DType::f8_e4m3:
      return first_with<uint8_t>(tensor.data, count, 0x7f);
    case DType::bf16:
      return first_with<uint16_t>(tensor.data, count, 0x7f80);
    case DType::f32:
      return first_with<uint32_t>(tensor.data, count, 0x7f800000);
    default:
      return count;
  }
}

}  // namespace

Result<void> check_finite(std::string_view name, const TensorRef& tensor) {
  const int64_t count = tensor.elements();
  const int64_t at = first_not_finite(tensor, count);
  if (at == count) return {};
  return make_error(ErrorCode::data_refused, std::string(name),
                    "{}: element {} is NaN or infinite, so the file is damaged; fetch it again ({} at offset "
                    "{})",
                    name, at, tensor.file, tensor.offset + static_cast<uint64_t>(at * size_of(tensor.dtype)));
}

}  // namespace godwit
