// mla_attend at the real width, whose prompt rows a backend may compute in another form than decode rows.
// What the pages hold is put there directly, and lists are made up: attention alone is looked at.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "dsa_world.h"

namespace godwit::ops_test {
namespace {

using kernels::RowKind;

constexpr int64_t kLatent = 512, kPageCount = 72;
constexpr int32_t kPool = 4;

struct Shape {
  DType format;
  int64_t heads;
  int32_t topk;
  // Latents of sizes 2^-20 … 1, the same for 32 tokens and 128 columns; and columns of one group 2^-40 of
  // that.
  bool spread = false;
};

// By which a group of columns is smaller than the others.
float unit_of(const Shape& shape, int64_t column) {
  return shape.spread && column / 128 == 1 ? 0x1p-40f : 1.0f;
}

class World {
 public:
  World(Side& side, const Shape& shape) : side_(side), shape_(shape) {
    cache_.latent_dtype = shape.format;
    cache_.latent_offset = 96;
    cache_.page_stride =
        cache_.latent_offset + kernels::kPageTokens * kernels::row_bytes(shape.format, kLatent);
    pages_.resize(static_cast<size_t>(kPageCount * cache_.page_stride), std::byte{0xff});
    for (int64_t page = 0; page < kPageCount; ++page) {
      for (int64_t i = 0; i < kernels::kPageTokens; ++i) {
        std::vector<float> v(kLatent);
        for (int64_t c = 0; c < kLatent; ++c) {
          const auto token = static_cast<uint64_t>(page * kernels::kPageTokens + i);
          v[static_cast<size_t>(c)] = noise(101, token, static_cast<uint64_t>(c)) * unit_of(shape, c);
          if (shape.spread)
            v[static_cast<size_t>(c)] *= std::ldexp(
                1.0f, -static_cast<int>((token / 32 * 7 + static_cast<uint64_t>(c) / 128 * 5) % 21));
        }
        put(page, i, v);
      }
    }
    cache_.base = side.upload(pages_);
  }

  // Breaks token i of a page.
  void spoil(int64_t page, int64_t i) {
    put(page, i, std::vector<float>(kLatent, NAN));
    side_.ops.memory().upload(cache_.base, pages_.data(), static_cast<int64_t>(pages_.size()));
  }

  Matrix attend(const std::vector<SequenceSpec>& specs, const PromptForm& form = {}) {
    const Step step(side_, specs);
    const int64_t rows = step.view.rows, keep = shape_.topk / kPool;
    Matrix query(rows, shape_.heads * kLatent), pools(rows, keep), count(rows, 1);
    step.each_row([&](int64_t row, const SequenceSpec& s, int64_t position) {
      const uint64_t key = s.stream * 1000003u + static_cast<uint64_t>(position);
      for (int64_t c = 0; c < query.cols; ++c) query.at(row, c) = noise(102, key, static_cast<uint64_t>(c));
      std::vector<int64_t> all(static_cast<size_t>((position + 1) / kPool));
      for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
      std::stable_sort(all.begin(), all.end(), [&](int64_t a, int64_t b) {
        return noise(103, key, static_cast<uint64_t>(a)) > noise(103, key, static_cast<uint64_t>(b));
      });
      all.resize(std::min(all.size(), static_cast<size_t>(keep)));
      std::sort(all.begin(), all.end());
      count.at(row, 0) = static_cast<float>(all.size());
      for (int64_t i = 0; i < keep; ++i) {
        const auto at = static_cast<size_t>(i);
        pools.at(row, i) = at < all.size() ? static_cast<float>(all[at]) : -1;
      }
    });
    round_prompts(step, form, query);
    kernels::MlaAttend a;
    a.query = side_.input(query, DType::f32, 4);
    a.cache = cache_;
    a.pools = side_.input(pools, DType::i32);
    a.count = side_.input(count, DType::i32);
    a.pool = kPool;
    a.heads = shape_.heads;
    a.scale = 0.1f;
    a.out = side_.output(rows, query.cols, DType::f32, 8);
    side_.ops.mla_attend(step.view, a);
    Matrix out = side_.read(a.out);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < out.cols; ++c) out.at(r, c) /= unit_of(shape_, c % kLatent);
    return out;
  }

 private:
  void put(int64_t page, int64_t i, const std::vector<float>& v) {
    kernels::DsaCache host = cache_;
    host.base = pages_.data();
    kernels::store_latent(host.latent(page, i, kLatent), shape_.format, v.data(), kLatent);
  }

  Side& side_;
  Shape shape_;
  kernels::DsaCache cache_;
  std::vector<std::byte> pages_;
};

// Physical pages in an order of their own for each stream.
std::vector<int32_t> shuffled(uint64_t stream) {
  std::vector<int32_t> pages(kPageCount);
  for (size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<int32_t>(i);
  std::stable_sort(pages.begin(), pages.end(), [&](int32_t a, int32_t b) {
    return noise(104, stream, static_cast<uint64_t>(a)) < noise(104, stream, static_cast<uint64_t>(b));
  });
  return pages;
}
SequenceSpec part(RowKind kind, int64_t first, int32_t rows, uint64_t stream) {
  return {kind, first, rows, static_cast<int32_t>(stream), 0, shuffled(stream), stream};
}

std::vector<DType> real_formats(const std::string& name) {
  std::vector<DType> formats = {DType::bf16, DType::f8_e4m3};
  std::erase_if(formats, [&](DType f) { return !backend(name).holds(f); });
  return formats;
}

void check_steps(const std::string& name, const Shape& shape,
                 const std::vector<std::vector<SequenceSpec>>& steps) {
  SCOPED_TRACE(
      fmt::format("{} {} heads topk {}", kernels::cache_format_name(shape.format), shape.heads, shape.topk));
  const PromptForm form = prompt_form(name, kLatent, shape.format);
  Side reference(oracle()), tested(backend(name));
  World expected(reference, shape), got(tested, shape);
  for (const auto& step : steps) {
    SCOPED_TRACE(fmt::format("rows from {}", step.back().first));
    expect_same_attention(Step(reference, step), form, got.attend(step), expected.attend(step, form));
  }
}

// Lists that are short, that end within a tile of any size, and that are cut.
TEST_P(Backends, AttentionOfMixedSteps) {
  for (const DType format : real_formats(GetParam())) {
    const SequenceSpec one = part(RowKind::decode, 300, 1, 1), few = part(RowKind::verify, 66, 5, 2);
    std::vector<std::vector<SequenceSpec>> steps = {{one, few}};
    for (const int32_t rows : {1, 63, 64, 65}) steps.push_back({part(RowKind::prefill, 0, rows, 3)});
    steps.push_back({one, few, part(RowKind::prefill, 0, 5, 4), part(RowKind::prefill, 64, 136, 3)});
    check_steps(GetParam(), {format, 3, 64}, steps);
    check_steps(GetParam(), {format, 16, 2048}, {{one, part(RowKind::prefill, 0, 200, 3)}});
    check_steps(GetParam(), {format, 18, 128}, {{part(RowKind::prefill, 1, 34, 3)}});
  }
}

TEST_P(Backends, AttentionOfListsOfTheRealLength) {
  for (const DType format : real_formats(GetParam()))
    check_steps(GetParam(), {format, 2, 2048},
                {{part(RowKind::prefill, 2046, 7, 5)},
                 {part(RowKind::decode, 2050, 1, 5), part(RowKind::prefill, 4550, 3, 6)}});
}

// Sizes that f16 could not hold, or that would leave others nothing.
TEST_P(Backends, AttentionToLatentsOfManySizes) {
  for (const DType format : real_formats(GetParam()))
    check_steps(GetParam(), {format, 5, 64, true},
                {{part(RowKind::decode, 150, 1, 7), part(RowKind::prefill, 130, 40, 8)}});
}

// A prompt whole, and in slices between other sequences.
TEST_P(EveryBackend, AttentionOfAPromptDoesNotDependOnItsSlices) {
  for (const DType format : real_formats(GetParam())) {
    SCOPED_TRACE(kernels::cache_format_name(format));
    Side s(backend(GetParam()));
    World world(s, {format, 2, 64});
    const Matrix whole = world.attend({part(RowKind::prefill, 0, 200, 9)});
    int64_t row = 0;
    for (const auto& [first, rows] : {std::pair{0, 64}, {64, 128}, {192, 8}}) {
      const Matrix out = world.attend(
          {part(RowKind::decode, 77, 2, 10), part(RowKind::prefill, 4000, first == 64 ? 1 : 3, 11),
           part(RowKind::prefill, first, rows, 9), part(RowKind::prefill, 0, rows / 2, 12)});
      for (int64_t r = 0; r < rows; ++r, ++row)
        expect_same_bits(pick(out, {2 + (first == 64 ? 1 : 3) + r}), pick(whole, {row}),
                         fmt::format("row {}", row));
    }
    EXPECT_EQ(row, 200);
  }
}

TEST_P(EveryBackend, ABrokenLatentIsSeenByThoseRowsThatListIt) {
  for (const DType format : real_formats(GetParam())) {
    SCOPED_TRACE(kernels::cache_format_name(format));
    Side s(backend(GetParam()));
    World world(s, {format, 2, 2048});
    const SequenceSpec prompt = part(RowKind::prefill, 0, 70, 13);
    const Matrix clean = world.attend({prompt});
    world.spoil(prompt.pages[0], 45);
    const Matrix got = world.attend({prompt});
    Rows before = all_rows(45);
    expect_same_bits(pick(got, before), pick(clean, before), "rows that do not see it");
    for (int64_t r = 45; r < 70; ++r)
      for (const int64_t c : {int64_t{0}, kLatent - 1, kLatent, 2 * kLatent - 1})
        EXPECT_TRUE(std::isnan(got.at(r, c))) << "row " << r << " column " << c;
  }
}

}  // namespace
}  // namespace godwit::ops_test
