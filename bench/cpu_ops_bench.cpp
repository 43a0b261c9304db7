// The CPU ops at the shapes of the tiny model (models/tiny-glm5next): one decode row at a context of 2,048
// and a prefill slice of 2,048 rows. Rates: GFLOP/s of the arithmetic (2 per multiply-add), GB/s of weights
// read.
//   cpu_ops_bench --benchmark_repetitions=9 --benchmark_format=json
#include <benchmark/benchmark.h>

#include <map>
#include <memory>
#include <random>
#include <vector>

#include "kernels/ops.h"
#include "tensor/tensor.h"

namespace {

using namespace godwit;
using namespace godwit::kernels;

constexpr int64_t kHidden = 256, kStreams = 4, kHeads = 4, kDim = 64, kLatent = 128, kTopk = 256, kPool = 4;
constexpr int64_t kExperts = 12, kChosen = 4, kInner = 128, kVocab = 2560, kContext = 2048, kTaps = 4;
constexpr int64_t kWidth = kHeads * kDim;

// Buffers live as long as the process; benchmarks run one after the other.
class World {
 public:
  explicit World(int threads) : ops(make_cpu_ops(threads)) {
    Dims d;
    d.hidden = kHidden, d.streams = kStreams, d.vocab = kVocab;
    d.kda_heads = kHeads, d.kda_key = kDim, d.conv_taps = kTaps;
    d.mla_heads = kHeads, d.latent = kLatent, d.nope = kDim, d.value = kDim;
    d.index_heads = kHeads, d.index_dim = kDim, d.index_pool = kPool, d.index_topk = kTopk;
    d.experts = kExperts, d.experts_topk = kChosen, d.expert_inner = kInner, d.widest_inner = 512;
    StepLimits l;
    l.rows = kContext, l.decode_rows = 64, l.sequences = 64, l.context = kContext, l.sampled_rows = 64;
    ready = ops->prepare(d, l).ok();
  }

  float* floats(int64_t n, float scale = 1) {
    buffers_.emplace_back(static_cast<size_t>(n) * sizeof(float));
    std::normal_distribution<float> normal(0, scale);
    for (int64_t i = 0; i < n; ++i) buffers_.back().as<float>()[i] = normal(random_);
    return buffers_.back().as<float>();
  }
  View view(int64_t rows, int64_t cols, float scale = 1) {
    return make_view(floats(rows * cols, scale), DType::f32, rows, cols);
  }
  View ints(int64_t rows, int64_t cols) {
    buffers_.emplace_back(static_cast<size_t>(rows * cols) * sizeof(int32_t));
    return make_view(buffers_.back().data(), DType::i32, rows, cols);
  }
  Weight weight(DType dtype, int64_t out, int64_t in) {
    const View wide = view(out, in, 1.0f / 16);
    buffers_.emplace_back(static_cast<size_t>(out * in * size_of(dtype)));
    Weight w{make_view(buffers_.back().data(), dtype, out, in)};
    for (int64_t i = 0; i < out * in; ++i) {
      const float x = static_cast<float*>(wide.data)[i];
      if (dtype == DType::bf16)
        w.data.row<bf16>(0)[i] = to_bf16(x);
      else
        w.data.row<f8_e4m3>(0)[i] = to_e4m3(x * 448);
    }
    if (dtype != DType::f8_e4m3) return w;
    w.scale_stride = (in + kFp8Block - 1) / kFp8Block;
    w.scales = floats((out + kFp8Block - 1) / kFp8Block * w.scale_stride, 1.0f / 448);
    return w;
  }

  std::unique_ptr<Ops> ops;
  bool ready = false;

 private:
  std::mt19937 random_{1};
  std::vector<Buffer> buffers_;
};

// One sequence: its last row, or all rows of a prompt.
struct Step {
  explicit Step(int32_t rows) : pages(kContext / kPageTokens), of_row(static_cast<size_t>(rows)) {
    for (size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<int32_t>(i);
    sequence.rows = rows;
    sequence.first = kContext - rows;
    sequence.kind = rows == 1 ? RowKind::decode : RowKind::prefill;
    view.rows = rows;
    view.sequences = 1;
    view.decode_rows = view.decode_sequences = rows == 1 ? 1 : 0;
    view.sequence = &sequence;
    view.row_sequence = of_row.data();
    view.pages = pages.data();
  }
  std::vector<int32_t> pages, of_row;
  Sequence sequence;
  StepView view;
};

World& world(int threads) {
  static std::map<int, std::unique_ptr<World>> worlds;
  std::unique_ptr<World>& w = worlds[threads];
  if (!w) w = std::make_unique<World>(threads);
  return *w;
}

// Runs `op` and reports its rates.
template <class F>
void measure(benchmark::State& state, double multiply_adds, double bytes, F&& op) {
  op();
  for (auto _ : state) op();
  const auto per_second = benchmark::Counter::kIsIterationInvariantRate;
  state.counters["GFLOP/s"] = benchmark::Counter(2e-9 * multiply_adds, per_second);
  if (bytes > 0) state.counters["GB/s"] = benchmark::Counter(1e-9 * bytes, per_second);
}

void linear(benchmark::State& state, DType dtype, int threads) {
  World& w = world(threads);
  const int64_t rows = state.range(0), out = state.range(1), in = state.range(2);
  const Linear a{w.view(rows, in), w.weight(dtype, out, in), w.view(rows, out)};
  measure(state, static_cast<double>(rows * out * in), static_cast<double>(out * in * size_of(dtype)),
          [&] { w.ops->linear(a); });
}

void mhc_boundary(benchmark::State& state) {
  World& w = world(1);
  const int64_t rows = state.range(0);
  const View streams = w.view(rows, kStreams * kHidden), mix = w.view(rows, kStreams + kStreams * kStreams);
  const int64_t mapping = 2 * kStreams + kStreams * kStreams;
  MhcBoundary a;
  a.expand = {mix, w.view(rows, kHidden), streams};
  a.collapse = {streams,
                {w.weight(DType::bf16, mapping, kStreams * kHidden).data, w.floats(mapping), w.floats(3)},
                1e-5f,
                1e-6f,
                20,
                mix,
                w.view(rows, kHidden)};
  a.norm_weight = w.floats(kHidden);
  a.normed = w.view(rows, kHidden);
  // Every pass mixes the streams again; C keeps their size, post y adds a little.
  measure(state, static_cast<double>(rows * kStreams * kHidden * (mapping + 6)), 0,
          [&] { w.ops->mhc_boundary(a); });
}

struct KdaInputs {
  KdaInputs(World& w, int64_t rows) {
    raw = w.view(rows, 3 * kWidth);
    conv = w.view(rows, 3 * kWidth);
    out = w.view(rows, kWidth);
    gates = {w.view(rows, kWidth), w.view(rows, kHeads), a_exp.data(), w.floats(kWidth), -5};
    state.base = reinterpret_cast<std::byte*>(w.floats(kHeads * kDim * kDim + kTaps * 3 * kWidth, 0.1f));
    state.window_offset = kHeads * kDim * kDim * static_cast<int64_t>(sizeof(float));
  }
  View raw, conv, out;
  std::vector<float> a_exp = std::vector<float>(kHeads, 1);
  KdaGates gates;
  KdaState state;
};

void kda(benchmark::State& state) {
  World& w = world(1);
  const int64_t rows = state.range(0);
  KdaInputs in(w, rows);
  const Step step(static_cast<int32_t>(rows));
  measure(state, static_cast<double>(rows * kWidth * kDim * 3), 0, [&] {
    if (rows == 1)
      w.ops->kda_step(step.view, {in.conv, in.gates, in.state, in.out});
    else
      w.ops->kda_chunk(step.view, {in.conv, in.gates, in.state, in.out});
  });
}

void kda_conv(benchmark::State& state) {
  World& w = world(1);
  const int64_t rows = state.range(0);
  KdaInputs in(w, rows);
  const Step step(static_cast<int32_t>(rows));
  const float* weight = w.floats(3 * kWidth * kTaps);
  measure(state, static_cast<double>(rows * 3 * kWidth * kTaps), 0, [&] {
    w.ops->kda_conv(step.view, {in.raw, weight, kTaps, in.state, in.conv});
  });
}

struct DsaInputs {
  DsaInputs(World& w, int64_t rows) {
    const int64_t page = kPageTokens * kLatent + kPageTokens / kPool * kDim;
    cache.base = reinterpret_cast<std::byte*>(w.floats(kContext / kPageTokens * page));
    cache.page_stride = page * static_cast<int64_t>(sizeof(float));
    cache.pooled_offset = kPageTokens * kLatent * static_cast<int64_t>(sizeof(float));
    select = {w.view(rows, kHeads * kDim), w.view(rows, kHeads), 1, cache, kPool, kTopk, kHeads,
              w.ints(rows, kTopk / kPool), w.ints(rows, 1)};
  }
  DsaCache cache;
  IndexSelect select;
};

void index_select(benchmark::State& state) {
  World& w = world(1);
  const int64_t rows = state.range(0);
  const DsaInputs in(w, rows);
  const Step step(static_cast<int32_t>(rows));
  const double pools = rows == 1 ? kContext / kPool : kContext / kPool / 2.0;
  measure(state, static_cast<double>(rows) * pools * kHeads * kDim, 0,
          [&] { w.ops->index_select(step.view, in.select); });
}

void mla_attend(benchmark::State& state) {
  World& w = world(1);
  const int64_t rows = state.range(0);
  const DsaInputs in(w, rows);
  const Step step(static_cast<int32_t>(rows));
  w.ops->index_select(step.view, in.select);
  const MlaAttend a{
      w.view(rows, kHeads * kLatent), in.cache, in.select.pools, in.select.count, kPool, kHeads, 0.125f,
      w.view(rows, kHeads * kLatent)};
  measure(state, static_cast<double>(rows * kTopk * kHeads * kLatent * 2), 0,
          [&] { w.ops->mla_attend(step.view, a); });
}

void moe(benchmark::State& state, DType dtype) {
  World& w = world(1);
  const int64_t rows = state.range(0);
  const View x = w.view(rows, kHidden);
  std::vector<ExpertWeights> table;
  for (int64_t e = 0; e < kExperts; ++e)
    table.push_back({w.weight(dtype, kInner, kHidden), w.weight(dtype, kInner, kHidden),
                     w.weight(dtype, kHidden, kInner)});
  Moe a;
  a.route = {x,
             w.weight(DType::bf16, kExperts, kHidden),
             w.floats(kExperts, 0.1f),
             2.5f,
             w.view(rows, kExperts),
             w.ints(rows, kChosen),
             w.view(rows, kChosen)};
  a.experts = {x,
               a.route.ids,
               a.route.weights,
               table.data(),
               table[0].gate.data.dtype,
               table[0].gate.out(),
               0,
               kExperts,
               10,
               w.view(rows, kHidden)};
  a.shared = {x,
              w.weight(dtype, kInner, kHidden),
              w.weight(dtype, kInner, kHidden),
              w.weight(dtype, kHidden, kInner),
              10,
              w.view(rows, 2 * kInner),
              w.view(rows, kInner),
              w.view(rows, kHidden)};
  a.out = w.view(rows, kHidden);
  const double weights = (kChosen + 1) * 3.0 * kHidden * kInner + kExperts * kHidden;
  measure(state, static_cast<double>(rows) * weights,
          rows == 1 ? weights * static_cast<double>(size_of(dtype)) : 0, [&] { w.ops->moe(a); });
}

// Rows, N, K of the tiny model's products: q|k|v and o, f_b and g_b, low ranks, dense FFN, lm_head, mHC.
void shapes(benchmark::internal::Benchmark* b) {
  b->Unit(benchmark::kMicrosecond);
  for (const int64_t rows : {1, 4, 64, 2048})
    for (const auto& [out, in] :
         {std::pair<int64_t, int64_t>{256, 256}, {64, 256}, {256, 64}, {512, 256}, {256, 512}})
      b->Args({rows, out, in});
  b->Args({1, kVocab, kHidden});
}
void both(benchmark::internal::Benchmark* b) {
  b->Unit(benchmark::kMicrosecond)->Arg(1)->Arg(kContext);
}

BENCHMARK_CAPTURE(linear, bf16_1_thread, DType::bf16, 1)->Apply(shapes);
BENCHMARK_CAPTURE(linear, fp8_1_thread, DType::f8_e4m3, 1)->Apply(shapes);
BENCHMARK_CAPTURE(linear, bf16_2_threads, DType::bf16, 2)->Apply(shapes)->UseRealTime();
BENCHMARK(mhc_boundary)->Apply(both);
BENCHMARK(kda)->Apply(both);
BENCHMARK(kda_conv)->Apply(both);
BENCHMARK(index_select)->Apply(both);
BENCHMARK(mla_attend)->Apply(both);
BENCHMARK_CAPTURE(moe, bf16, DType::bf16)->Apply(both);
BENCHMARK_CAPTURE(moe, fp8, DType::f8_e4m3)->Apply(both);

}  // namespace

BENCHMARK_MAIN();
