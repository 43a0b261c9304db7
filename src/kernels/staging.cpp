#include "kernels/staging.h"

#include <cstdlib>
#include <cstring>
#include <new>

#include "kernels/ops.h"

namespace godwit::kernels {
namespace {

class PlainStaging final : public Staging {
 public:
  PlainStaging(Memory& memory, int64_t bytes) : memory_(memory), buffer_(allocate(bytes)) {}

  std::byte* next() override { return buffer_.get(); }
  void send(void* to, const std::byte* from, int64_t row_bytes, int64_t rows, int64_t stride) override {
    if (rows == 1 || stride == row_bytes) return memory_.upload(to, from, rows * row_bytes);
    const size_t bytes = static_cast<size_t>(rows * row_bytes);
    if (packed_.bytes() < bytes) packed_ = Buffer(bytes);  // one upload, not one a row
    for (int64_t r = 0; r < rows; ++r)
      std::memcpy(packed_.as<std::byte>() + r * row_bytes, from + r * stride, static_cast<size_t>(row_bytes));
    memory_.upload(to, packed_.data(), static_cast<int64_t>(bytes));
  }
  void finish() override {}

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  static std::byte* allocate(int64_t bytes) {
    constexpr size_t kPage = 4096;
    void* p = std::aligned_alloc(kPage, (static_cast<size_t>(bytes) + kPage - 1) / kPage * kPage);
    if (!p) throw std::bad_alloc();
    return static_cast<std::byte*>(p);
  }

  Memory& memory_;
  std::unique_ptr<std::byte, Free> buffer_;
  Buffer packed_;
};

}  // namespace

std::unique_ptr<Staging> make_plain_staging(Memory& memory, int64_t bytes) {
  return std::make_unique<PlainStaging>(memory, bytes);
}

std::unique_ptr<Staging> Memory::staging(int64_t bytes) {
  return make_plain_staging(*this, bytes);
}

}  // namespace godwit::kernels
