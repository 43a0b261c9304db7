#include "weights/load.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "weights/inventory.h"
#include "weights/quantize.h"
#include "weights/safetensors_writer.h"
#include "weights/totals.h"
#include "weights_test_support.h"

namespace godwit {
namespace {

// The value of an element as spec §3.4 defines it.
float value_at(const Weight& w, int64_t row, int64_t column) {
  if (w.data.dtype == DType::f32) return w.data.row<float>(row)[column];
  if (w.data.dtype == DType::bf16) return to_float(w.data.row<bf16>(row)[column]);
  return to_float(w.data.row<f8_e4m3>(row)[column]) *
         w.scales[row / kFp8Block * w.scale_stride + column / kFp8Block];
}

TEST(Load, CopiesOnlyWhatIsNotAligned) {
  // One byte in front puts the next tensors at odd addresses.
  const char* const kHeader = R"({"pad":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                              R"("f":{"dtype":"F32","shape":[2,3],"data_offsets":[1,25]},)"
                              R"("h":{"dtype":"BF16","shape":[3],"data_offsets":[25,31]}})";
  for (const bool is_aligned : {false, true}) {
    std::string header = kHeader;
    // The data starts at 8 + the header's length; the file itself is page aligned.
    while ((8 + header.size() + 1) % 4 != (is_aligned ? 0 : 1)) header += ' ';
    TempDir dir;
    write_whole_file(dir.path() / "model.safetensors", safetensors_image(header, 31));
    Result<Checkpoint> checkpoint = Checkpoint::open(dir.path());
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    std::vector<Buffer> copies;
    Result<Weight> f = weight_view(*checkpoint, "f", copies);
    Result<Weight> h = weight_view(*checkpoint, "h", copies);
    ASSERT_TRUE(f.ok() && h.ok());
    EXPECT_EQ(copies.size(), is_aligned ? 0u : 2u);
    EXPECT_EQ(f->out(), 2);
    EXPECT_EQ(f->in(), 3);
    EXPECT_EQ(f->scales, nullptr);
    EXPECT_EQ(h->out(), 3);
    EXPECT_EQ(h->in(), 1);
    EXPECT_EQ(std::memcmp(f->data.data, checkpoint->find("f")->data, 24), 0);
    Result<Buffer> wide = load_f32(*checkpoint, "h");
    ASSERT_TRUE(wide.ok());
    ASSERT_EQ(wide->bytes(), 12u);
    for (uint16_t i = 0; i < 3; ++i) {
      const uint16_t bits = static_cast<uint16_t>((25 + 2 * i) | (26 + 2 * i) << 8);
      EXPECT_EQ(wide->as<float>()[i], to_float(bf16{bits}));
    }
    EXPECT_EQ(std::memcmp(load_f32(*checkpoint->find("f")).data(), checkpoint->find("f")->data, 24), 0);
    EXPECT_EQ(weight_view(*checkpoint, "absent", copies).error().code, ErrorCode::data_refused);
    EXPECT_EQ(load_f32(*checkpoint, "absent").error().code, ErrorCode::data_refused);
  }
}

TEST(Quantize, FollowsTheBlocks) {
  constexpr int64_t kRows = 144, kColumns = 130;  // ragged both ways
  std::vector<float> w(kRows * kColumns);
  for (size_t i = 0; i < w.size(); ++i) w[i] = std::sin(static_cast<float>(i)) * (i % 7 == 0 ? 20.0f : 1.0f);
  w[3] = 0.0f;
  for (int64_t r = 128; r < kRows; ++r) {
    for (int64_t c = 128; c < kColumns; ++c)
      w[static_cast<size_t>(r * kColumns + c)] = 0.0f;  // a block of zeros
  }
  std::vector<f8_e4m3> values(w.size());
  std::vector<float> scales(4);
  const View view = make_view(w.data(), DType::f32, kRows, kColumns);
  ASSERT_TRUE(quantize_fp8_blocks(view, values.data(), scales.data()).ok());
  Weight q;
  q.data = make_view(values.data(), DType::f8_e4m3, kRows, kColumns);
  q.scales = scales.data();
  q.scale_stride = 2;
  EXPECT_EQ(scales[3], 1.0f);
  std::vector<float> largest(4, 0.0f);
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t c = 0; c < kColumns; ++c) {
      const float exact = w[static_cast<size_t>(r * kColumns + c)];
      float& block = largest[static_cast<size_t>(r / 128 * 2 + c / 128)];
      block = std::max(block, std::fabs(exact));
      // Half a step of a 3-bit mantissa, or half the subnormal step of the block.
      const float scale = scales[static_cast<size_t>(r / 128 * 2 + c / 128)];
      const float bound = std::max(std::fabs(exact) / 16, scale * 0.001f);
      ASSERT_LE(std::fabs(value_at(q, r, c) - exact), bound) << r << "," << c;
    }
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(scales[i], largest[i] / 448.0f);

  w[5] = std::numeric_limits<float>::infinity();
  Result<void> refused = quantize_fp8_blocks(view, values.data(), scales.data());
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("row 0 and column 5"), std::string::npos);
}

// A slice reads the same values as the whole.
TEST(Load, SlicesWeightsWithTheirScales) {
  constexpr int64_t kRows = 256, kColumns = 384;
  std::vector<float> w(kRows * kColumns);
  for (size_t i = 0; i < w.size(); ++i)
    w[i] = std::cos(static_cast<float>(i)) * static_cast<float>(1 + i % 1000);
  std::vector<f8_e4m3> values(w.size());
  std::vector<float> scales(6);
  ASSERT_TRUE(
      quantize_fp8_blocks(make_view(w.data(), DType::f32, kRows, kColumns), values.data(), scales.data())
          .ok());
  Weight whole;
  whole.data = make_view(values.data(), DType::f8_e4m3, kRows, kColumns);
  whole.scales = scales.data();
  whole.scale_stride = 3;
  const Slice kSlices[] = {
      {{0, 256}, {128, 256}}, {{128, 256}, {0, 384}}, {{32, 96}, {256, 384}}, {{128, 160}, {320, 384}}};
  for (const Slice& slice : kSlices) {
    const Weight part = slice_weight(whole, slice);
    ASSERT_EQ(part.out(), slice.rows.size());
    ASSERT_EQ(part.in(), slice.columns.size());
    for (int64_t r = 0; r < part.out(); ++r) {
      for (int64_t c = 0; c < part.in(); ++c) {
        ASSERT_EQ(value_at(part, r, c), value_at(whole, slice.rows.begin + r, slice.columns.begin + c));
      }
    }
  }
}

}  // namespace
}  // namespace godwit
