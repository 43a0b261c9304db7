// index_select in the shape that prompt rows have a form of their own for. Keys, queries and weights are
// small integers, so scores are exact in every format and form, and many tie: the lists must be those of an
// exact selection. The pooled keys are put into the pages directly.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "harness.h"
#include "step_builder.h"

namespace godwit::ops_test {
namespace {

using kernels::RowKind;

constexpr int64_t kHeads = 32, kDim = 128;
constexpr int64_t kUsed = 6;  // channels that are not zero

// How a sequence's keys are, by its stream.
enum Keys : uint64_t { kRandom, kRising, kZeros, kSpoiled };
constexpr int64_t kSpoiledPool = 3;  // holds a NaN: no product with it is above zero

int key_of(uint64_t keys, int64_t pool, int64_t c) {
  if (keys % 4 == kZeros || c >= kUsed) return 0;
  if (keys % 4 == kRising) return c == 0 ? static_cast<int>(std::min<int64_t>(pool / 160, 15)) : 0;
  return std::clamp(static_cast<int>(std::round(
                        1.5f * noise(601 + keys, static_cast<uint64_t>(pool), static_cast<uint64_t>(c)))),
                    -3, 3);
}
int query_of(uint64_t stream, int64_t position, int64_t h, int64_t c) {
  if (c >= kUsed) return 0;
  const auto row = static_cast<uint64_t>(position) + 1000003 * stream;
  return std::clamp(static_cast<int>(std::round(noise(602, row, static_cast<uint64_t>(8 * h + c)))), -2, 2);
}
int weight_of(uint64_t stream, int64_t position, int64_t h) {
  const auto row = static_cast<uint64_t>(position) + 1000003 * stream;
  return std::clamp(static_cast<int>(std::round(2 * noise(603, row, static_cast<uint64_t>(h)))), -2, 4);
}

std::vector<float> exact_list(const SequenceSpec& s, int64_t position, int64_t pool, int64_t keep) {
  const int64_t candidates = (position + 1) / pool;
  std::vector<int> q(kHeads * kUsed);
  for (int64_t h = 0; h < kHeads; ++h)
    for (int64_t c = 0; c < kUsed; ++c)
      q[static_cast<size_t>(h * kUsed + c)] = query_of(s.stream, position, h, c);
  std::vector<int> scores(static_cast<size_t>(candidates));
  for (int64_t p = 0; p < candidates; ++p) {
    if (s.stream % 4 == kSpoiled && p == kSpoiledPool) continue;
    for (int64_t h = 0; h < kHeads; ++h) {
      int dot = 0;
      for (int64_t c = 0; c < kUsed; ++c)
        dot += q[static_cast<size_t>(h * kUsed + c)] * key_of(s.stream, p, c);
      scores[static_cast<size_t>(p)] += weight_of(s.stream, position, h) * std::max(dot, 0);
    }
  }
  std::vector<float> order(scores.size());
  std::iota(order.begin(), order.end(), 0.0f);
  std::stable_sort(order.begin(), order.end(), [&](float a, float b) {
    return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
  });
  order.resize(static_cast<size_t>(std::min(keep, candidates)));
  std::sort(order.begin(), order.end());
  order.resize(static_cast<size_t>(keep), -1);
  return order;
}

class SelectWorld {
 public:
  SelectWorld(Side& side, DType format, int32_t pool, int32_t topk)
      : side_(side), format_(format), pool_(pool), topk_(topk) {}

  // A sequence with all its keys, up to its last row's, in pages out of order.
  SequenceSpec sequence(RowKind kind, int64_t first, int32_t rows, uint64_t stream) {
    SequenceSpec s{kind, first, rows, 0, 0, {}, stream};
    const int64_t per_page = kernels::kPageTokens / pool_;
    const int64_t count = (first + rows + kernels::kPageTokens - 1) / kernels::kPageTokens;
    for (int64_t i = 0; i < count; ++i) s.pages.push_back(taken_ + static_cast<int32_t>(count - 1 - i));
    taken_ += static_cast<int32_t>(count);
    const int64_t stride = page_bytes();
    bytes_.resize(static_cast<size_t>(taken_ * stride));
    std::vector<float> key(kDim);
    for (int64_t p = 0; p < count * per_page; ++p) {
      std::byte* page = bytes_.data() + s.pages[static_cast<size_t>(p / per_page)] * stride;
      const kernels::StoredRow row = kernels::key_at(page, format_, per_page, p % per_page, kDim);
      // What no row sees yet is not zero.
      for (int64_t c = 0; c < kDim; ++c)
        key[static_cast<size_t>(c)] =
            p < (first + rows) / pool_ ? static_cast<float>(key_of(stream, p, c)) : 448.0f;
      if (stream % 4 == kSpoiled && p == kSpoiledPool) key[7] = std::nanf("");
      if (format_ == DType::f8_e4m3) {  // as they are when turned
        kernels::encode_group(key.data(), kDim, 1, kernels::codes_of(row));
        row.scales[0] = 1;
      } else {
        kernels::store_key(row, format_, key.data(), kDim);
      }
    }
    return s;
  }
  // [T, keep + 1]: lists, and behind them the counts.
  Matrix select(const std::vector<SequenceSpec>& specs) {
    const Step step(side_, specs);
    const int64_t rows = step.view.rows;
    Matrix query(rows, kHeads * kDim), weight(rows, kHeads);
    step.each_row([&](int64_t row, const SequenceSpec& s, int64_t position) {
      for (int64_t h = 0; h < kHeads; ++h) {
        weight.at(row, h) = static_cast<float>(weight_of(s.stream, position, h));
        for (int64_t c = 0; c < kDim; ++c)
          query.at(row, h * kDim + c) = static_cast<float>(query_of(s.stream, position, h, c));
        if (format_ == DType::f8_e4m3) kernels::hadamard(&query.at(row, h * kDim), kDim);
      }
    });
    kernels::DsaCache cache;
    cache.base = side_.upload(bytes_);
    cache.page_stride = page_bytes();
    cache.pooled_dtype = format_;
    const View pools = side_.output(rows, keep(), DType::i32, 3);
    const View count = side_.output(rows, 1, DType::i32);
    side_.ops.index_select(step.view, {side_.input(query, DType::f32, 4), side_.input(weight, DType::f32, 1),
                                       1, cache, pool_, topk_, kHeads, pools, count});
    return beside({side_.read(pools), side_.read(count)});
  }
  Matrix check(const std::vector<SequenceSpec>& specs) {
    Matrix got = select(specs);
    int64_t row = 0;
    for (const SequenceSpec& s : specs) {
      for (int32_t r = 0; r < s.rows; ++r, ++row) {
        const int64_t position = s.first + r;
        std::vector<float> expected = exact_list(s, position, pool_, keep());
        expected.push_back(static_cast<float>(std::min(keep(), (position + 1) / pool_)));
        const Matrix own = pick(got, {row});
        const auto at = std::mismatch(own.v.begin(), own.v.end(), expected.begin()).first - own.v.begin();
        if (at == keep() + 1) continue;
        ADD_FAILURE() << "row " << row << " at " << position << ", entry " << at << ": " << own.at(0, at)
                      << " instead of " << expected[static_cast<size_t>(at)] << ", keys " << s.stream;
        return got;
      }
    }
    return got;
  }

 private:
  int64_t keep() const { return topk_ / pool_; }
  int64_t page_bytes() const { return kernels::kPageTokens / pool_ * kernels::row_bytes(format_, kDim); }

  Side& side_;
  DType format_;
  int32_t pool_, topk_, taken_ = 0;
  std::vector<std::byte> bytes_;
};

void each_format(const std::string& name, const std::function<void(Side&, DType)>& f) {
  for (const DType format : {DType::bf16, DType::f8_e4m3}) {
    SCOPED_TRACE(kernels::cache_format_name(format));
    Side side(backend(name));
    f(side, format);
  }
}

// Rows that choose from all pools, and rows that choose among them, in one group of rows and beside other
// sequences of both families.
TEST_P(EveryBackend, SliceSelectAroundTheLimit) {
  each_format(GetParam(), [&](Side& side, DType format) {
    SelectWorld world(side, format, 4, 2048);
    world.check({world.sequence(RowKind::decode, 2070, 1, 4), world.sequence(RowKind::verify, 2046, 6, 8),
                 world.sequence(RowKind::prefill, 2040, 7, 0), world.sequence(RowKind::prefill, 2044, 9, 16),
                 world.sequence(RowKind::prefill, 2300, 1, 5), world.sequence(RowKind::prefill, 0, 3, 12),
                 world.sequence(RowKind::prefill, 2304, 8, 2),
                 world.sequence(RowKind::prefill, 2049, 17, 1)});
    world.check({world.sequence(RowKind::decode, 2090, 2, 20)});
  });
}

TEST_P(EveryBackend, SliceSelectOfShortLists) {
  each_format(GetParam(), [&](Side& side, DType format) {
    for (const auto& [pool, topk] : {std::pair{4, 64}, {1, 20}, {16, 16}}) {
      SelectWorld world(side, format, pool, topk);
      std::vector<SequenceSpec> specs;
      for (const int32_t rows : {1, 7, 8, 9, 64}) {
        if (pool != 4 && rows > 9) continue;
        specs.push_back(world.sequence(RowKind::prefill, int64_t{64} * rows, rows,
                                       uint64_t{4} * static_cast<uint64_t>(rows)));
      }
      world.check(specs);
    }
    SelectWorld world(side, format, 4, 64);
    world.check({world.sequence(RowKind::prefill, 0, 200, 24)});
  });
}

// So few rows that their pools are shared out; scores that rise make every later pool better.
TEST_P(EveryBackend, SliceSelectSharesALongContext) {
  each_format(GetParam(), [&](Side& side, DType format) {
    SelectWorld world(side, format, 4, 2048);
    for (const uint64_t keys : {kRandom, kRising, kZeros, kSpoiled}) {
      if (keys == kSpoiled && GetParam() == "cpu") continue;  // ranks such a pool last
      world.check({world.sequence(RowKind::prefill, 10000, 3, keys)});
      world.check(
          {world.sequence(RowKind::prefill, 5001, 9, keys), world.sequence(RowKind::prefill, 64, 1, 28)});
    }
  });
}

// So many that they are not; a prompt cut on a page's edge has the same lists.
TEST_P(EveryBackend, SliceSelectOfManyRows) {
  each_format(GetParam(), [&](Side& side, DType format) {
    SelectWorld world(side, format, 4, 2048);
    const SequenceSpec whole = world.sequence(RowKind::prefill, 4288, 88, kRising);
    const Matrix expected = world.check({whole});
    SequenceSpec first = whole, second = whole;
    first.rows = 64, second.first += 64, second.rows -= 64;
    const SequenceSpec before = world.sequence(RowKind::prefill, 2100, 5, 36);
    const Matrix one = world.check({before, first}), other = world.check({second, before});
    Rows rows = all_rows(88);
    const Rows head(rows.begin(), rows.begin() + 64), tail(rows.begin() + 64, rows.end());
    expect_same_bits(pick(one, Rows(rows.begin() + 5, rows.begin() + 69)), pick(expected, head),
                     "first part");
    expect_same_bits(pick(other, all_rows(24)), pick(expected, tail), "second part");
  });
}

}  // namespace
}  // namespace godwit::ops_test
