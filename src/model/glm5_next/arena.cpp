#include "model/glm5_next/arena.h"

#include <algorithm>
#include <cstring>

namespace godwit::model {
namespace {

constexpr int64_t kAlign = 256;

}  // namespace

Arena::~Arena() {
  for (void* p : owned_) memory_.release(p);
}

std::byte* Arena::take(int64_t bytes) {
  bytes = (std::max<int64_t>(bytes, 1) + kAlign - 1) / kAlign * kAlign;
  if (in_place() || bytes > kSlabBytes / 2) {
    owned_.push_back(memory_.allocate(bytes));
    return static_cast<std::byte*>(owned_.back());
  }
  // The smallest rest that holds it, so that block scales fill what matrices of a slab's fraction leave:
  // experts in slabs of their own would waste a sixteenth of all memory.
  Rest* best = nullptr;
  for (Rest& rest : rests_)
    if (rest.bytes >= bytes && (!best || rest.bytes < best->bytes)) best = &rest;
  if (!best) {
    owned_.push_back(memory_.allocate(kSlabBytes));
    best = &rests_.emplace_back(Rest{static_cast<std::byte*>(owned_.back()), kSlabBytes});
  }
  std::byte* p = best->at;
  best->at += bytes;
  best->bytes -= bytes;
  if (best->bytes == 0) rests_.erase(rests_.begin() + (best - rests_.data()));
  return p;
}

const void* Arena::place(const void* host, int64_t bytes) {
  if (in_place() || host == nullptr) return host;
  std::byte* p = take(bytes);
  memory_.upload(p, host, bytes);
  return p;
}

View Arena::place(const View& host) {
  if (in_place() || host.data == nullptr) return host;
  const int64_t row_bytes = host.cols * size_of(host.dtype);
  View placed = make_view(take(host.rows * row_bytes), host.dtype, host.rows, host.cols);
  if (host.stride == host.cols) {
    memory_.upload(placed.data, host.data, host.rows * row_bytes);
    return placed;
  }
  Buffer packed(static_cast<size_t>(host.rows * row_bytes));
  for (int64_t r = 0; r < host.rows; ++r) {
    std::memcpy(packed.as<std::byte>() + r * row_bytes, host.row_range(r, 1).data,
                static_cast<size_t>(row_bytes));
  }
  memory_.upload(placed.data, packed.data(), host.rows * row_bytes);
  return placed;
}

Weight Arena::room_for(const Weight& host) {
  if (in_place() || host.empty()) return host;
  const auto room = [&](DType dtype, int64_t rows, int64_t cols) {
    return make_view(take(rows * cols * size_of(dtype)), dtype, rows, cols);
  };
  Weight w{room(host.data.dtype, host.out(), host.in())};
  if (host.scales == nullptr) return w;
  const int64_t blocks = (host.in() + kFp8Block - 1) / kFp8Block;
  w.scales = room(DType::f32, (host.out() + kFp8Block - 1) / kFp8Block, blocks).row<const float>(0);
  w.scale_stride = blocks;
  return w;
}

}  // namespace godwit::model
