#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "dsa_world.h"

namespace godwit::ops_test {
namespace {

using kernels::RowKind;

std::vector<int32_t> page_run(int32_t first, int32_t count) {
  std::vector<int32_t> pages(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) pages[static_cast<size_t>(i)] = first + i;
  return pages;
}

// Equal, except that pools may swap whose scores the definition separates by less than f32 can.
void expect_same_selection(DsaWorld& expected_world, const std::vector<SequenceSpec>& specs,
                           const Selection& got, const Selection& expected) {
  int64_t row = 0;
  int64_t near_ties = 0;
  for (const SequenceSpec& s : specs) {
    for (int32_t r = 0; r < s.rows; ++r, ++row) {
      ASSERT_EQ(got.count.at(row, 0), expected.count.at(row, 0)) << "row " << row;
      std::set<float> differ;
      std::set<float> ours, theirs;
      for (int64_t i = 0; i < got.pools.cols; ++i) {
        const bool listed = static_cast<float>(i) < got.count.at(row, 0);
        if (listed && i > 0) {
          ASSERT_GT(got.pools.at(row, i), got.pools.at(row, i - 1)) << "row " << row;
        }
        if (!listed) {
          ASSERT_EQ(got.pools.at(row, i), -1) << "row " << row;
        }
        ours.insert(got.pools.at(row, i));
        theirs.insert(expected.pools.at(row, i));
      }
      std::set_symmetric_difference(ours.begin(), ours.end(), theirs.begin(), theirs.end(),
                                    std::inserter(differ, differ.end()));
      if (differ.empty()) continue;
      ++near_ties;
      const std::vector<double> scores = expected_world.scores(s, s.first + r);
      double low = INFINITY, high = -INFINITY, largest = 0;
      for (const double v : scores) largest = std::max(largest, std::fabs(v));
      for (const float p : differ) {
        ASSERT_GE(p, 0);
        low = std::min(low, scores[static_cast<size_t>(p)]);
        high = std::max(high, scores[static_cast<size_t>(p)]);
      }
      EXPECT_LE(high - low, 4e-6 * largest) << "row " << row << " chose other pools";
    }
  }
  EXPECT_LE(near_ties, row / 50 + 1);
}

struct Case {
  DsaShape shape;
  std::vector<std::vector<SequenceSpec>> steps;
};

std::vector<Case> cases() {
  const auto mixed = [] {
    const std::vector<int32_t> a = {5, 2, 9, 7}, b = {1}, c = {12, 3, 8}, d = {15, 14};
    std::vector<std::vector<SequenceSpec>> steps = {
        {{RowKind::prefill, 0, 129, 1, 0, a, 1},
         {RowKind::prefill, 0, 3, 2, 0, b, 2},
         {RowKind::prefill, 0, 64, 3, 0, c, 3}},
        {{RowKind::decode, 129, 1, 1, 0, a, 1},
         {RowKind::verify, 3, 6, 2, 0, b, 2},
         {RowKind::prefill, 64, 70, 3, 0, c, 3},
         {RowKind::prefill, 0, 65, 4, 0, d, 4}},
        // Two of six drafts were kept: positions 5… are written again with what really came.
        {{RowKind::verify, 5, 6, 2, 0, b, 20},
         {RowKind::forced, 130, 9, 1, 0, a, 1},
         {RowKind::draft, 65, 2, 4, 0, d, 4}},
    };
    return steps;
  };
  std::vector<Case> list;
  list.push_back({{}, mixed()});
  list.push_back({{.heads = 1, .latent = 16, .index_heads = 1, .index_dim = 16, .topk = 4}, mixed()});
  list.push_back({{.heads = 2, .latent = 128, .index_heads = 4, .index_dim = 64, .topk = 64}, mixed()});
  list.push_back({{.heads = 2, .latent = 40, .index_heads = 3, .index_dim = 24, .topk = 2048}, mixed()});
  list.push_back(
      {{.heads = 3, .latent = 72, .topk = 16, .latent_dtype = DType::bf16, .pooled_dtype = DType::bf16},
       mixed()});
  // Shapes that fast forms take: heads of one and of two blocks; lists of one piece, of a group, of several.
  for (const DType format : {DType::bf16, DType::f8_e4m3}) {
    for (const auto& [heads, topk] : {std::pair<int64_t, int32_t>{16, 64}, {18, 2048}}) {
      list.push_back({{.heads = heads,
                       .latent = 512,
                       .index_heads = 32,
                       .index_dim = 128,
                       .topk = topk,
                       .latent_dtype = format,
                       .pooled_dtype = format,
                       .half_queries = true},
                      mixed()});
    }
  }
  list.push_back({{.heads = 18,
                   .latent = 48,
                   .index_heads = 5,
                   .index_dim = 32,
                   .topk = 2048,
                   .latent_dtype = DType::bf16,
                   .pooled_dtype = DType::bf16},
                  mixed()});
  constexpr DType kCodes = DType::f8_e4m3;
  list.push_back({{.latent_dtype = kCodes, .pooled_dtype = kCodes}, mixed()});
  // Ragged groups whose codes are padded.
  list.push_back({{.heads = 5,
                   .latent = 131,
                   .index_heads = 6,
                   .index_dim = 133,
                   .topk = 16,
                   .latent_dtype = kCodes,
                   .pooled_dtype = kCodes},
                  mixed()});
  return list;
}

// The formats that a backend has kernels for.
std::vector<DType> formats_of(const std::string& name) {
  std::vector<DType> formats = {DType::f32, DType::bf16, DType::f8_e4m3};
  std::erase_if(formats, [&](DType f) { return !backend(name).holds(f); });
  return formats;
}

TEST_P(Backends, DsaMixedStepsMatchTheOracle) {
  for (const Case& c : cases()) {
    if (!backend(GetParam()).holds(c.shape.latent_dtype)) continue;
    SCOPED_TRACE(
        fmt::format("latent {} topk {} {}", c.shape.latent, c.shape.topk, name_of(c.shape.latent_dtype)));
    const bool coded = c.shape.pooled_dtype == DType::f8_e4m3;
    const PromptForm form = prompt_form(GetParam(), c.shape.latent, c.shape.latent_dtype);
    Side reference(oracle());
    Side tested(backend(GetParam()));
    DsaWorld expected(reference, c.shape);
    DsaWorld got(tested, c.shape);
    // bf16 pooled keys: a value between two codes may round either way.
    const Tolerance pooled = c.shape.pooled_dtype == DType::bf16 ? Tolerance{1e-4, 4e-3} : kF32;
    std::set<std::pair<int32_t, int64_t>> complete;  // (page, pool) written so far
    for (const auto& step : c.steps) {
      expected.write(step);
      got.write(step);
      // Sums of f32 may come out on either side of a tie between two codes; what is made of the codes is
      // exact. How keys become codes is for Fp8KeysAreTheCodesOfTheF32Ones.
      if (coded) got.adopt(expected);
      const Selection selection = expected.select(step);
      expect_same_selection(expected, step, got.select(step), selection);
      expect_same_attention(Step(reference, step), form, got.attend(step, selection),
                            expected.attend(step, selection, form));
      for (const SequenceSpec& s : step) {
        for (int64_t t = s.first; t < s.first + s.rows; ++t) {
          const int32_t page = s.pages[static_cast<size_t>(t / 64)];
          const int64_t in_page = t % 64;
          if (coded) continue;
          expect_same_bits(pick(got.latents(page), {in_page}), pick(expected.latents(page), {in_page}),
                           "latent");
          if ((t + 1) % c.shape.pool != 0) continue;
          const Rows pool = {in_page / c.shape.pool};
          expect_close(pick(got.pooled(page), pool), pick(expected.pooled(page), pool), pooled, "pooled key");
        }
      }
    }
  }
}

// A form of prompt rows may round their queries to bf16, and must not round those of the rows beside them.
TEST_P(Backends, IndexSelectOfAnyQueries) {
  const DsaShape exact{.latent = 8,
                       .index_heads = 32,
                       .index_dim = 128,
                       .topk = 64,
                       .latent_dtype = DType::bf16,
                       .pooled_dtype = DType::bf16};
  DsaShape rounded = exact;
  rounded.half_queries = true;
  Side reference(oracle());
  Side tested(backend(GetParam()));
  DsaWorld expected(reference, exact), got(tested, exact), of_rounded(tested, rounded);
  const std::vector<int32_t> pages = page_run(0, 10);
  const SequenceSpec prompt{RowKind::prefill, 600, 40, 1, 0, pages, 5};
  const SequenceSpec decode{RowKind::verify, 600, 6, 1, 0, pages, 9};
  for (DsaWorld* world : {&expected, &got, &of_rounded}) {
    world->write({{RowKind::prefill, 0, 640, 1, 0, pages, 5}});
    if (world != &expected) world->adopt(expected);
  }
  const Selection lists = got.select({decode, prompt});
  const Rows first = all_rows(6);
  Rows rest;
  for (int64_t r = 6; r < 46; ++r) rest.push_back(r);
  expect_same_selection(expected, {decode}, {pick(lists.pools, first), pick(lists.count, first)},
                        expected.select({decode}));
  const Selection of_rest{pick(lists.pools, rest), pick(lists.count, rest)};
  if (of_rest.pools.v == of_rounded.select({prompt}).pools.v) return;
  expect_same_selection(expected, {prompt}, of_rest, expected.select({prompt}));
}

TEST_P(Backends, IndexSelectAroundPowersOfTwoPools) {
  for (const DType dtype : formats_of(GetParam())) {
    SCOPED_TRACE(name_of(dtype));
    const DsaShape shape{.heads = 3,
                         .latent = dtype == DType::bf16 ? 64 : 72,
                         .index_heads = dtype == DType::f32 ? 2 : 32,
                         .index_dim = dtype == DType::f32 ? 16 : 128,
                         .topk = 32,
                         .latent_dtype = dtype,
                         .pooled_dtype = dtype,
                         .pages = 80};
    Side reference(oracle());
    Side tested(backend(GetParam()));
    DsaWorld expected(reference, shape);
    DsaWorld got(tested, shape);
    const std::vector<int32_t> pages = page_run(0, 80);
    const SequenceSpec prompt{RowKind::prefill, 0, 1000, 1, 0, pages, 5};
    for (int64_t first = 0; first < 5000; first += 1000) {
      SequenceSpec part = prompt;
      part.first = first;
      expected.write({part});
      got.write({part});
    }
    if (dtype == DType::f8_e4m3) got.adopt(expected);
    for (const int64_t pools : {7, 8, 9, 15, 16, 17, 255, 256, 257, 511, 512, 513, 1023, 1024, 1025}) {
      for (const int64_t extra : {0, 1, 3}) {  // tokens after the last whole pool
        const SequenceSpec query{RowKind::decode, pools * 4 - 1 + extra, 1, 1, 0, pages, 5};
        const Selection selection = expected.select({query});
        expect_same_selection(expected, {query}, got.select({query}), selection);
        expect_close(got.attend({query}, selection), expected.attend({query}, selection), {4e-6, 1e-5},
                     "attention");
      }
    }
  }
}

// Lists of other rows, with the pools that were completed since (trap T38).
TEST_P(EveryBackend, IndexReuseAddsWhatWasCompletedSince) {
  for (const int32_t pool : {1, 4, 16}) {
    Side side(backend(GetParam()));
    constexpr int32_t kListed = 5, kRoom = 14;
    const std::vector<int32_t> pages = page_run(0, 4);
    std::vector<SequenceSpec> specs;
    for (const int64_t position : {0, 2, 3, 4, 63, 64, 130})
      specs.push_back({RowKind::draft, position, 1, 1, 0, pages});
    const Step step(side, specs);
    Matrix lists(9, kListed), counts(9, 1);
    for (int64_t r = 0; r < lists.rows; ++r) {
      counts.at(r, 0) = static_cast<float>(r % (kListed + 1));
      for (int64_t i = 0; i < kListed; ++i)
        lists.at(r, i) = static_cast<float>(i < r % (kListed + 1) ? 100 * r + i : -1);
    }
    const View from = side.input(lists, DType::i32, 2), count = side.input(counts, DType::i32);
    const std::vector<int32_t> picked = {8, 3, 3, 0, 5, 7, 1};
    const int32_t* const rows = side.ints(picked);
    for (const int32_t ahead : {0, 1, 2, 4, 5})
      for (const bool maps : {false, true}) {
        const View out = side.output(step.view.rows, kRoom, DType::i32, 3);
        const View listed = side.output(step.view.rows, 1, DType::i32);
        side.ops.index_reuse(step.view, {from, count, maps ? rows : nullptr, ahead, pool, out, listed});
        const Matrix got = side.read(out), got_count = side.read(listed);
        step.each_row([&](int64_t row, const SequenceSpec&, int64_t position) {
          const int64_t source = maps ? picked[static_cast<size_t>(row)] : row;
          std::vector<float> expected;
          for (int64_t i = 0; i < counts.at(source, 0); ++i) expected.push_back(lists.at(source, i));
          for (int64_t t = std::max<int64_t>(0, position - ahead + 1); ahead > 0 && t <= position; ++t)
            if ((t + 1) % pool == 0) expected.push_back(static_cast<float>(t / pool));
          EXPECT_EQ(got_count.at(row, 0), static_cast<float>(expected.size())) << "row " << row;
          expected.resize(kRoom, -1);
          EXPECT_EQ(pick(got, {row}).v, expected) << "row " << row << " ahead " << ahead << " pool " << pool;
        });
      }
  }
}

TEST_P(EveryBackend, IndexSelectBreaksTiesToTheLowerPool) {
  Side s(backend(GetParam()));
  for (const auto& [levels, dtype] : {std::pair(1, DType::f32),
                                      {3, DType::f32},
                                      {1, DType::bf16},
                                      {3, DType::bf16},
                                      {1, DType::f8_e4m3},
                                      {3, DType::f8_e4m3}}) {
    if (!s.ops.holds(dtype)) continue;
    // With one level nearly all scores are equal.
    const DsaShape shape{.index_heads = 1,
                         .index_dim = dtype == DType::f32 ? 8 : 16,
                         .topk = 24,
                         .pooled_dtype = dtype,
                         .pages = 20,
                         .levels = levels};
    DsaWorld world(s, shape);
    const SequenceSpec prompt{RowKind::prefill, 0, 1000, 1, 0, page_run(0, 20), 6};
    world.write({prompt});
    const Selection got = world.select({prompt});
    int64_t tied_rows = 0;
    for (int64_t t = 0; t < 1000; ++t) {
      const std::vector<double> exact = world.scores(prompt, t);
      std::vector<int32_t> order(exact.size());
      for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return exact[a] > exact[b]; });
      if (order.size() > 6) {
        tied_rows += exact[order[5]] == exact[order[6]];
        // Differences below f32 are ties to a backend and not to us.
        if (exact[order[5]] != exact[order[6]] && std::fabs(exact[order[5]] - exact[order[6]]) < 1e-5)
          continue;
        order.resize(6);
      }
      std::sort(order.begin(), order.end());
      for (size_t i = 0; i < order.size(); ++i) {
        ASSERT_EQ(got.pools.at(t, static_cast<int64_t>(i)), order[i]) << "levels " << levels << " row " << t;
      }
    }
    EXPECT_GT(tied_rows, 50) << "the test must meet ties";
  }
}

TEST_P(EveryBackend, DsaPhysicalPagesDoNotMatter) {
  for (const DType format : formats_of(GetParam())) {
    const DsaShape shape{
        .heads = 2, .latent = 48, .topk = 16, .latent_dtype = format, .pooled_dtype = format};
    Side s(backend(GetParam()));
    Matrix results[2];
    const std::vector<int32_t> tables[2] = {{0, 1, 2, 3}, {13, 4, 11, 2}};
    for (int i = 0; i < 2; ++i) {
      DsaWorld world(s, shape);
      const SequenceSpec prompt{RowKind::prefill, 0, 200, 1, 0, tables[i], 8};
      const SequenceSpec query{RowKind::decode, 200, 1, 1, 0, tables[i], 8};
      world.write({prompt});
      const Selection first = world.select({prompt});
      const Matrix out = world.attend({prompt}, first);
      world.write({query});
      const Selection second = world.select({query});
      const Matrix next = world.attend({query}, second);
      results[i] = beside({first.pools, out});
      const Matrix last = beside({second.pools, next});
      results[i].v.insert(results[i].v.end(), last.v.begin(), last.v.end());
      ++results[i].rows;
    }
    expect_same_bits(results[1], results[0], "permuted pages");
  }
}

// A prompt whole, and in slices that straddle pools, the last of another kind, each with another sequence
// before or after it.
void check_slices(const std::string& name, const DsaShape& shape, RowKind kind, RowKind last) {
  SCOPED_TRACE(fmt::format("latent {} {}", shape.latent, name_of(shape.latent_dtype)));
  Side s(backend(name));
  DsaWorld whole(s, shape);
  DsaWorld sliced(s, shape);
  const std::vector<int32_t> a = {3, 1, 6, 2};
  const SequenceSpec prompt{kind, 0, 200, 1, 0, a, 9};
  whole.write({prompt});
  const Selection expected_pools = whole.select({prompt});
  const Matrix expected = whole.attend({prompt}, expected_pools);
  int64_t row = 0;
  for (const auto& [first, rows] : {std::pair{0, 64}, {64, 128}, {192, 2}, {194, 1}, {195, 5}}) {
    const SequenceSpec slice{first < 192 ? kind : last, first, rows, 1, 0, a, 9};
    const SequenceSpec before{RowKind::decode, 0, 1, 2, 0, {9}, 10};
    const SequenceSpec after{RowKind::prefill, 0, rows > 5 ? 67 : 3, 3, 0, {12, 13}, 11};
    sliced.write({before, slice, after});
    const Selection pools = sliced.select({before, slice, after});
    const Matrix out = sliced.attend({before, slice, after}, pools);
    for (int64_t r = 0; r < rows; ++r, ++row) {
      expect_same_bits(pick(pools.pools, {r + 1}), pick(expected_pools.pools, {row}),
                       fmt::format("pools {}", row));
      expect_same_bits(pick(out, {r + 1}), pick(expected, {row}), fmt::format("attention {}", row));
    }
  }
  EXPECT_EQ(row, 200);
  for (const int32_t page : {3, 1, 6}) {
    expect_same_bits(sliced.latents(page), whole.latents(page), "latents");
    expect_same_bits(sliced.pooled(page), whole.pooled(page), "pooled keys");
  }
}

TEST_P(EveryBackend, DsaSlicesAndNeighboursDoNotMatter) {
  for (const DType format : formats_of(GetParam()))
    check_slices(GetParam(),
                 {.heads = 2, .latent = 40, .topk = 16, .latent_dtype = format, .pooled_dtype = format},
                 RowKind::prefill, RowKind::verify);
}

// Shapes of fast forms, which may share a row out differently when there are many, and whose attention has a
// form for each family.
TEST_P(Backends, DsaSlicesOfTheRealShapeDoNotMatter) {
  for (const DType format : {DType::bf16, DType::f8_e4m3}) {
    for (const auto& [kind, last] :
         {std::pair(RowKind::prefill, RowKind::prefill), {RowKind::forced, RowKind::verify}}) {
      check_slices(GetParam(),
                   {.heads = 2,
                    .latent = 512,
                    .index_heads = 32,
                    .index_dim = 128,
                    .topk = 512,
                    .latent_dtype = format,
                    .pooled_dtype = format},
                   kind, last);
    }
  }
}

// Selection may begin before the launch that writes the keys of its own rows has ended.
TEST_P(EveryBackend, SelectionSeesTheKeysOfItsStep) {
  const std::vector<int32_t> pages = {3, 1, 6};
  for (const DType format : {DType::bf16, DType::f8_e4m3}) {
    if (!backend(GetParam()).holds(format)) continue;
    SCOPED_TRACE(name_of(format));
    Side s(backend(GetParam()));
    const DsaShape shape{.heads = 1,
                         .latent = 8,
                         .index_heads = 32,
                         .index_dim = 128,
                         .topk = 16,
                         .latent_dtype = format,
                         .pooled_dtype = format};
    DsaWorld apart(s, shape);
    DsaWorld together(s, shape);
    int32_t first = 0;
    for (const int32_t rows : {70, 1, 1, 8, 3, 5, 8, 1, 40}) {
      const bool decodes = rows <= 8;
      const SequenceSpec spec{decodes ? RowKind::verify : RowKind::prefill, first, rows, 1, 0, pages, 9};
      apart.write({spec});
      const Selection expected = apart.select({spec});
      const Selection got = together.write_and_select({spec});
      expect_same_bits(got.pools, expected.pools, fmt::format("pools of {} rows from {}", rows, first));
      expect_same_bits(got.count, expected.count, "count");
      first += rows;
    }
  }
}

// Drafts 0…5 beyond position p of which n are kept: finished pools hold only what was kept (trap T26).
TEST_P(EveryBackend, RejectedDraftsLeaveNothingInPools) {
  for (const DType format : formats_of(GetParam())) {
    const DsaShape shape{
        .heads = 1, .latent = 8, .index_dim = 16, .topk = 8, .latent_dtype = format, .pooled_dtype = format};
    Side s(backend(GetParam()));
    const std::vector<int32_t> pages = {2};
    for (int64_t start = 0; start <= 12; ++start) {
      for (int32_t kept = 1; kept <= 6; ++kept) {
        DsaWorld drafted(s, shape);
        DsaWorld plain(s, shape);
        if (start > 0) {
          const SequenceSpec prompt{RowKind::prefill, 0, static_cast<int32_t>(start), 1, 0, pages, 1};
          drafted.write({prompt});
          plain.write({prompt});
        }
        drafted.write({{RowKind::verify, start, kept, 1, 0, pages, 1}});
        if (kept < 6) drafted.write({{RowKind::draft, start + kept, 6 - kept, 1, 0, pages, 99}});
        drafted.write({{RowKind::verify, start + kept, 6, 1, 0, pages, 1}});
        for (int64_t t = start; t < start + kept + 6; ++t)
          plain.write({{RowKind::decode, t, 1, 1, 0, pages, 1}});
        Rows done = all_rows((start + kept + 6) / 4);
        expect_same_bits(pick(drafted.pooled(2), done), pick(plain.pooled(2), done),
                         fmt::format("start {} kept {}", start, kept));
      }
    }
  }
}

}  // namespace
}  // namespace godwit::ops_test
