// Barriers of asynchronous copies and warpgroup products (PTX ISA, mbarrier and wgmma.mma_async).
#include "kernels/sm90/device/warpgroup.cuh"

#include <algorithm>
#include <array>
#include <functional>
#include <map>

#include "fibers.h"
#include "kernels/sm90/device/hardware.cuh"
#include "tensor/dtype.h"

namespace godwit::emulation {
// runtime.cpp
extern Fibers fibers;
void* shared_of(const void* own, unsigned block);
size_t end_bulk_copies(const uint64_t* barrier);
}  // namespace godwit::emulation

namespace godwit::sm90 {
namespace {

struct Barrier {
  uint32_t count : 12, pending : 12;  // arrivals of a phase, and those still missing
  uint32_t phase : 8;
  int32_t copied;  // bytes announced and not yet there
};
static_assert(sizeof(Barrier) == sizeof(uint64_t));

Barrier load(const uint64_t* at) {
  return __builtin_bit_cast(Barrier, *at);
}
void store(uint64_t* at, const Barrier& b) {
  *at = __builtin_bit_cast(uint64_t, b);
}

// Byte `k` of row `row` of a tile, from an operand that may be some 32 bytes into its first row.
const uint8_t* byte_of(uint64_t operand, int row, int k) {
  const uintptr_t at = operand * 16, tile = at / 1024 * 1024, column = at % 1024 + static_cast<unsigned>(k);
  const uintptr_t piece = (column / 16) ^ static_cast<unsigned>(row % 8);
  return reinterpret_cast<const uint8_t*>(tile) + static_cast<unsigned>(row) * 128 + piece * 16 + column % 16;
}
float element(uint64_t operand, int row, int k) {
  return to_float(f8_e4m3{*byte_of(operand, row, k)});
}

// Products of a thread that nothing has waited for. f(d, add) makes one.
struct Product {
  const float* d;
  std::function<void()> make;
};
std::map<size_t, std::vector<Product>> products;  // by thread of a cluster
std::vector<Product>& under_way() {
  return products[emulation::fibers.thread()];
}
template <int kValues, class F>
void begin_product(float (&d)[kValues], bool add, F f) {
  std::vector<Product>& all = under_way();
  std::array<float, kValues> before{};
  const bool is_first = std::none_of(all.begin(), all.end(), [&](const Product& p) { return p.d == d; });
  if (is_first) {
    std::copy_n(d, kValues, before.begin());
    std::fill_n(d, kValues, NAN);
  }
  all.push_back({d, [&d, add, f, before, is_first] {
                   if (is_first) std::copy(before.begin(), before.end(), d);
                   f(d, add);
                 }});
}

template <int kValues>
void multiply_bf16(float (&to)[kValues], uint64_t a, uint64_t b, bool add_to) {
  const int thread = static_cast<int>(threadIdx.x % 128), warp = thread / 32, lane = thread % 32;
  begin_product(to, add_to, [=](float(&d)[kValues], bool add) {
    constexpr int kDepth = 16;
    const auto row_of = [](uint64_t operand, int row, float(&into)[kDepth]) {
      for (int k = 0; k < kDepth; k += 8) {
        const auto* piece = reinterpret_cast<const uint16_t*>(byte_of(operand, row, 2 * k));
        for (int i = 0; i < 8; ++i) into[k + i] = __uint_as_float(uint32_t{piece[i]} << 16);
      }
    };
    float left[2][kDepth];
    for (int half = 0; half < 2; ++half) row_of(a, 16 * warp + lane / 4 + 8 * half, left[half]);
    for (int j = 0; j < kValues / 4; ++j)
      for (int c = 0; c < 2; ++c) {
        float right[kDepth];
        row_of(b, 8 * j + 2 * (lane % 4) + c, right);
        for (int half = 0; half < 2; ++half) {
          float sum = add ? d[4 * j + 2 * half + c] : 0.0f;
          for (int k = 0; k < kDepth; ++k) sum += left[half][k] * right[k];
          d[4 * j + 2 * half + c] = sum;
        }
      }
  });
}

}  // namespace

}  // namespace godwit::sm90
namespace godwit::emulation {
// How many products nobody has waited for. They are forgotten.
size_t leave_products() {
  size_t left = 0;
  for (auto& [thread, all] : sm90::products) left += all.size(), all.clear();
  return left;
}
}  // namespace godwit::emulation
namespace godwit::sm90 {

void mbarrier_init(uint64_t* barrier, uint32_t count) {
  store(barrier, {count & 0xfffu, count & 0xfffu, 0, 0});
}
void mbarrier_init_done() {}
namespace {
// `bytes` are announced (positive) or have come (negative).
void change(uint64_t* barrier, int arrivals, int64_t bytes) {
  Barrier b = load(barrier);
  b.copied = static_cast<int32_t>(b.copied + bytes);
  b.pending = (b.pending - static_cast<unsigned>(arrivals)) & 0xfffu;
  if (b.pending == 0 && b.copied == 0) b.pending = b.count, ++b.phase;
  store(barrier, b);
}
}  // namespace
void mbarrier_arrive(uint64_t* barrier) {
  change(barrier, 1, 0);
}
void mbarrier_arrive_at(uint64_t* barrier, uint32_t block) {
  change(static_cast<uint64_t*>(emulation::shared_of(barrier, block)), 1, 0);
}
void mbarrier_arrive_expecting(uint64_t* barrier, uint32_t bytes) {
  change(barrier, 1, bytes);
}
void mbarrier_arrive_copies(uint64_t* barrier) {
  commit_copies();
  wait_copies_but(0);
  mbarrier_arrive(barrier);
}
void store_async_at(float* to, uint32_t block, float value, uint64_t* barrier) {
  if (emulation::fibers.ended(block))
    emulation::fail("a store to block %zu of a cluster, which has ended", size_t{block});
  *static_cast<float*>(emulation::shared_of(to, block)) = value;
  change(static_cast<uint64_t*>(emulation::shared_of(barrier, block)), 0, -int64_t{sizeof value});
}
void mbarrier_wait(uint64_t* barrier, uint32_t parity) {
  // The phase of a parity has ended when the one that runs has the other; one that never ran has ended for
  // parity 1.
  emulation::fibers.wait_until([barrier, parity] {
    if (const size_t bytes = emulation::end_bulk_copies(barrier); bytes > 0)
      change(barrier, 0, -static_cast<int64_t>(bytes));
    return (load(barrier).phase & 1) != parity;
  });
}

uint32_t block_of_cluster() {
  return emulation::fibers.block();
}
void cluster_sync() {
  arrive_at_cluster();
  wait_for_cluster();
}

namespace {

struct Tensor {
  const uint8_t* base;
  int64_t rows, columns, box_rows;
};
Tensor tensor_of(const TensorMap& map) {
  Tensor t;
  std::memcpy(&t, &map, sizeof t);
  return t;
}
TensorMap map_of(const Tensor& t) {
  TensorMap map{};
  std::memcpy(&map, &t, sizeof t);
  return map;
}

}  // namespace

TensorMap tensor_map(const void* base, int64_t rows, int64_t columns, int box_rows) {
  return map_of({static_cast<const uint8_t*>(base), rows, columns, box_rows});
}
void put_tensor_map(TensorMap* to, const TensorMap& model, const void* base) {
  Tensor t = tensor_of(model);
  t.base = static_cast<const uint8_t*>(base);
  *to = map_of(t);
}
void copy_box_to(uint32_t blocks, void* to, const TensorMap* map, int32_t column, int32_t row,
                 uint64_t* barrier) {
  const Tensor t = tensor_of(*map);
  if (reinterpret_cast<uintptr_t>(to) % 1024 != 0 || reinterpret_cast<uintptr_t>(t.base) % 16 != 0)
    emulation::fail("a box or its tensor is not aligned (to %zu bytes)", size_t{1024});
  for (unsigned block = 0; block < emulation::fibers.blocks(); ++block) {
    if ((blocks >> block & 1) == 0) continue;
    auto* box = static_cast<uint8_t*>(emulation::shared_of(to, block));
    for (int64_t r = 0; r < t.box_rows; ++r)
      for (int64_t c = 0; c < 128; ++c) {
        const bool inside = row + r < t.rows && column + c < t.columns;
        const int64_t piece = c / 16 ^ r % 8;
        box[r * 128 + piece * 16 + c % 16] = inside ? t.base[(row + r) * t.columns + column + c] : uint8_t{0};
      }
    change(static_cast<uint64_t*>(emulation::shared_of(barrier, block)), 0, -128 * t.box_rows);
  }
}

void wgmma_wait() {
  for (const Product& p : under_way()) p.make();
  under_way().clear();
}

void wgmma_e4m3(float (&to)[64], uint64_t a, uint64_t b, bool add_to) {
  const int thread = static_cast<int>(threadIdx.x % 128), warp = thread / 32, lane = thread % 32;
  begin_product(to, add_to, [=](float(&d)[64], bool add) {
    constexpr int kDepth = 32;
    float left[2][kDepth];
    for (int half = 0; half < 2; ++half)
      for (int k = 0; k < kDepth; ++k) left[half][k] = element(a, 16 * warp + lane / 4 + 8 * half, k);
    for (int j = 0; j < 16; ++j)
      for (int c = 0; c < 2; ++c) {
        float right[kDepth];
        for (int k = 0; k < kDepth; ++k) right[k] = element(b, 8 * j + 2 * (lane % 4) + c, k);
        for (int half = 0; half < 2; ++half) {
          float sum = add ? d[4 * j + 2 * half + c] : 0.0f;
          for (int k = 0; k < kDepth; ++k) sum += left[half][k] * right[k];
          d[4 * j + 2 * half + c] = sum;
        }
      }
  });
}

void wgmma_bf16(float (&d)[4], uint64_t a, uint64_t b, bool add) {
  multiply_bf16(d, a, b, add);
}
void wgmma_bf16(float (&d)[16], uint64_t a, uint64_t b, bool add) {
  multiply_bf16(d, a, b, add);
}

}  // namespace godwit::sm90
