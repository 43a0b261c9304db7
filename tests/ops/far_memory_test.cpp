// Slots and pages whose byte offsets pass 2^32: reserved address space, of which only what is touched exists.
#include <fmt/core.h>
#include <sys/mman.h>

#include "dsa_world.h"
#include "kda_world.h"

namespace godwit::ops_test {
namespace {

using kernels::RowKind;

// On a device all of it is allocated, for nothing can be reserved there.
class Reserved {
 public:
  Reserved(Side& side, size_t bytes) : memory_(side.ops.memory()), bytes_(bytes) {
    if (!memory_.host_addressable()) {
      base_ = static_cast<std::byte*>(memory_.allocate(static_cast<int64_t>(bytes)));
      return;
    }
    void* p =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p != MAP_FAILED) base_ = static_cast<std::byte*>(p);
  }
  ~Reserved() {
    if (!base_) return;
    if (memory_.host_addressable()) {
      munmap(base_, bytes_);
    } else {
      memory_.release(base_);
    }
  }
  std::byte* base() const { return base_; }

 private:
  kernels::Memory& memory_;
  size_t bytes_;
  std::byte* base_ = nullptr;
};

constexpr int64_t kFar = (int64_t{1} << 30) + 4096;  // five of them pass 2^32

TEST_P(EveryBackend, KdaSlotsBeyond32Bits) {
  Side s(backend(GetParam()));
  const Reserved memory(s, 6 * kFar);
  ASSERT_NE(memory.base(), nullptr);
  const KdaShape near_shape{.heads = 2, .d = 16};
  KdaShape far_shape = near_shape;
  far_shape.slot_stride = kFar;
  KdaWorld near_world(s, near_shape);
  KdaWorld far_world(s, far_shape, memory.base());
  const std::vector<std::vector<SequenceSpec>> steps = {
      {{.kind = RowKind::prefill, .first = 0, .rows = 66, .slot = 5, .stream = 1}},
      {{.kind = RowKind::verify, .first = 66, .rows = 3, .slot = 5, .stream = 1}},
      {{.kind = RowKind::decode, .first = 68, .rows = 1, .slot = 5, .replay = 2, .stream = 1}}};
  for (const auto& step : steps) expect_same_bits(far_world.run(step), near_world.run(step), "outputs");
  expect_same_bits(far_world.state(5), near_world.state(5), "state");
  expect_same_bits(far_world.window(5), near_world.window(5), "window");
}

TEST_P(EveryBackend, DsaPagesAndRingsBeyond32Bits) {
  Side s(backend(GetParam()));
  const Reserved pages(s, 6 * kFar);
  const Reserved rings(s, 6 * kFar);
  ASSERT_NE(pages.base(), nullptr);
  ASSERT_NE(rings.base(), nullptr);
  const DsaShape near_shape{.heads = 2, .latent = 24, .topk = 16};
  DsaShape far_shape = near_shape;
  far_shape.page_stride = far_shape.ring_stride = kFar;
  DsaWorld near_world(s, near_shape);
  DsaWorld far_world(s, far_shape, pages.base(), rings.base());
  const std::vector<int32_t> table = {5, 4, 1};
  for (const SequenceSpec& part : {SequenceSpec{RowKind::prefill, 0, 128, 5, 0, table, 1},
                                   SequenceSpec{RowKind::forced, 128, 7, 5, 0, table, 1}}) {
    near_world.write({part});
    far_world.write({part});
    const Selection expected = near_world.select({part});
    const Selection got = far_world.select({part});
    expect_same_bits(got.pools, expected.pools, "pools");
    expect_same_bits(far_world.attend({part}, got), near_world.attend({part}, expected), "attention");
  }
}

// Rows of x, of the weights and of the output so far apart that row times stride passes 2^31 elements.
TEST_P(EveryBackend, LinearRowsBeyond32Bits) {
  Side s(backend(GetParam()));
  constexpr int64_t kStride = (int64_t{1} << 30) + 1024, kRows = 4, kOut = 5, kIn = 40;
  for (const DType dtype : {DType::f32, DType::bf16, DType::f8_e4m3}) {
    const Reserved far_x(s, kRows * kStride * 4), far_w(s, kOut * kStride * 4),
        far_out(s, kRows * kStride * 4);
    ASSERT_TRUE(far_x.base() && far_w.base() && far_out.base());
    const View x = s.input(random_matrix(95, kRows, kIn));
    const Weight w = s.weight(96, kOut, kIn, dtype);
    const View out = s.output(kRows, kOut);
    s.ops.linear({x, w, out});
    const auto spread = [&](std::byte* to, const View& from) {
      const View v{to, from.dtype, from.rows, from.cols, kStride};
      for (int64_t r = 0; r < from.rows; ++r) {
        s.ops.memory().copy(v.row_range(r, 1).data, from.row_range(r, 1).data,
                            from.cols * size_of(from.dtype));
      }
      return v;
    };
    Weight spread_w = w;
    spread_w.data = spread(far_w.base(), w.data);
    const View got = spread(far_out.base(), out);
    s.ops.linear({spread(far_x.base(), x), spread_w, got});
    for (int64_t r = 0; r < kRows; ++r) {
      const View one = make_view(got.row<float>(r), DType::f32, 1, kOut);
      expect_same_bits(s.read(one), pick(s.read(out), {r}), std::string(name_of(dtype)));
    }
  }
}

// The same of the rows of x and of the output in the form of decode rows.
TEST_P(EveryBackend, LinearRowsOfWholeBlocksBeyond32Bits) {
  Side s(backend(GetParam()));
  constexpr int64_t kStride = (int64_t{1} << 28) + 1024, kRows = 18, kOut = 40, kIn = 256;
  const kernels::Dims real{.hidden = 4096, .kda_heads = 16, .kda_key = 128};
  for (const DType x_type : {DType::f32, DType::bf16}) {
    if (x_type == DType::bf16 && backend(GetParam()).activations(real) != DType::bf16) continue;
    for (const DType dtype : {DType::bf16, DType::f8_e4m3}) {
      const Reserved far_x(s, kRows * kStride * size_of(x_type)), far_out(s, kRows * kStride * 4);
      ASSERT_TRUE(far_x.base() && far_out.base());
      const View x = s.input(random_matrix(97, kRows, kIn), x_type);
      const View spread_x{far_x.base(), x_type, kRows, kIn, kStride};
      for (int64_t r = 0; r < kRows; ++r)
        s.ops.memory().copy(spread_x.row_range(r, 1).data, x.row_range(r, 1).data, kIn * size_of(x_type));
      const Weight w = s.weight(98, kOut, kIn, dtype);
      const View out = s.output(kRows, kOut), got{far_out.base(), DType::f32, kRows, kOut, kStride};
      s.ops.linear({x, w, out});
      s.ops.linear({spread_x, w, got});
      for (int64_t r = 0; r < kRows; ++r) {
        expect_same_bits(s.read(make_view(got.row<float>(r), DType::f32, 1, kOut)), pick(s.read(out), {r}),
                         fmt::format("row {}, {} x, {} weights", r, name_of(x_type), name_of(dtype)));
      }
    }
  }
}

}  // namespace
}  // namespace godwit::ops_test
