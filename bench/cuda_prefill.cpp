// The ops of a prefill slice, one by one, at the shapes of one rank of TP4: random weights and inputs, graph
// replays. One JSON object to stdout. Usage: cuda_prefill [ROWS [EXPERTS_OF_THIS_RANK [PART [once]]]]; 72
// experts are --ep 4, 288 --ep 1. PART: kda, dsa, mhc, ffn or all. once: for a profiler.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <random>
#include <string_view>

#include "kernels/make_ops.h"

namespace godwit {
namespace {

using Clock = std::chrono::steady_clock;
using kernels::Ops;

constexpr int64_t kHidden = 4096, kHeads = 16, kDim = 128, kWidth = kHeads * kDim, kLatent = 512, kNope = 256;
constexpr int64_t kQLora = 1536, kIndexHeads = 32, kIndexDim = 128, kExperts = 288, kChosen = 8,
                  kDense = 3072;
constexpr int64_t kSharedInner = 512, kStreams = 4, kTaps = 4;

class Bench {
 public:
  Bench(Ops& ops, int64_t rows, bool once) : ops_(ops), memory_(ops.memory()), rows_(rows), once_(once) {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (float& x : values_) x = normal(random);
    for (uint8_t& c : codes_) c = static_cast<uint8_t>((random() & 0x80) | (0x20 + random() % 32));
    value_pool_ = place(values_.data(), kPool * 4);
    code_pool_ = place(codes_.data(), kPool);
    std::vector<bf16> narrow;
    for (const float x : values_) narrow.push_back(to_bf16(0.02f * x));
    bf16_pool_ = place(narrow.data(), kPool * 2);
  }
  ~Bench() {
    for (void* p : owned_) memory_.release(p);
  }

  View activations(int64_t cols, DType dtype = DType::f32) {
    const View v = make_view(take(rows_ * cols * size_of(dtype)), dtype, rows_, cols);
    const bool half = dtype == DType::bf16;
    fill(v.data, half ? bf16_pool_ : value_pool_, rows_ * cols * size_of(dtype), kPool * (half ? 2 : 4));
    return v;
  }
  Weight weight(int64_t out, int64_t in, DType dtype) {
    Weight w{make_view(take(out * in * size_of(dtype)), dtype, out, in)};
    if (dtype == DType::bf16) {
      fill(w.data.data, bf16_pool_, out * in * 2, kPool * 2);
      return w;
    }
    fill(w.data.data, code_pool_, out * in, kPool);
    const std::vector<float> scales(static_cast<size_t>((out / kFp8Block) * (in / kFp8Block)), 0.002f);
    w.scales = static_cast<const float*>(place(scales.data(), static_cast<int64_t>(scales.size()) * 4));
    w.scale_stride = in / kFp8Block;
    return w;
  }
  template <class T>
  T* array(const std::vector<T>& v) {
    return static_cast<T*>(place(v.data(), static_cast<int64_t>(v.size() * sizeof(T))));
  }
  const float* floats(int64_t count, float value) {
    return array(std::vector<float>(static_cast<size_t>(count), value));
  }
  void* take(int64_t bytes) {
    owned_.push_back(memory_.allocate(bytes));
    return owned_.back();
  }

  void time(const char* name, double gflop, double gigabytes, const std::function<void()>& issue) {
    issue();  // what is chosen at a first call
    if (once_) return;
    const auto recording = ops_.record(issue);
    const auto round = [&](int replays) {
      wait();
      const auto start = Clock::now();
      for (int i = 0; i < replays; ++i) recording->replay();
      wait();
      return std::chrono::duration<double, std::micro>(Clock::now() - start).count() / replays;
    };
    const int replays = std::clamp(static_cast<int>(10e3 / round(1)), 1, 100);
    std::vector<double> times;
    for (int i = 0; i < 5; ++i) times.push_back(round(replays));
    std::sort(times.begin(), times.end());
    fmt::print(
        "{}  {{\"op\": \"{}\", \"rows\": {}, \"us\": {:.1f}, \"us_min\": {:.1f}, \"us_max\": {:.1f}, "
        "\"tflop_per_s\": {:.1f}, \"gb_per_s\": {:.0f}}}",
        first_ ? "" : ",\n", name, rows_, times[2], times[0], times[4], gflop / times[2] * 1e3,
        gigabytes / times[2] * 1e6);
    first_ = false;
    std::fflush(stdout);
  }
  // Two forms of an op, by the largest difference over the largest value; says so when they disagree.
  void compare(const char* name, const std::vector<float>& got, const std::vector<float>& expected,
               double most) const {
    double largest = 0, difference = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
      const double d = std::abs(static_cast<double>(got[i]) - static_cast<double>(expected[i]));
      difference = std::isnan(d) ? d : std::max(difference, d);
      if (std::isnan(d)) break;
    }
    const bool agree = difference <= most * largest;
    fmt::print(stderr, "{}: forms {} by {:.2e} of the largest value\n", name, agree ? "agree" : "DISAGREE",
               difference / largest);
  }

 private:
  static constexpr int64_t kPool = 1 << 22;
  void* place(const void* host, int64_t bytes) {
    void* p = take(bytes);
    memory_.upload(p, host, bytes);
    return p;
  }
  // Copies that begin at places of their own, so that no two tensors are alike.
  void fill(void* to, const void* pool, int64_t bytes, int64_t pool_bytes) {
    auto* p = static_cast<std::byte*>(to);
    int64_t from = (next_ += 4096 * 37) % (pool_bytes / 2);
    for (int64_t at = 0; at < bytes;) {
      const int64_t count = std::min(bytes - at, pool_bytes - from);
      memory_.copy(p + at, static_cast<const std::byte*>(pool) + from, count);
      at += count, from = 0;
    }
  }
  void wait() {
    float ignored;
    memory_.download(&ignored, value_pool_, 4);
  }

  Ops& ops_;
  kernels::Memory& memory_;
  int64_t rows_, next_ = 0;
  bool once_;
  static inline bool first_ = true;  // of all ops
  std::vector<float> values_ = std::vector<float>(kPool);
  std::vector<uint8_t> codes_ = std::vector<uint8_t>(kPool);
  void *value_pool_ = nullptr, *code_pool_ = nullptr, *bf16_pool_ = nullptr;
  std::vector<void*> owned_;
};

double gflop(int64_t rows, int64_t out, int64_t in) {
  return 2e-9 * static_cast<double>(rows) * static_cast<double>(out) * static_cast<double>(in);
}
double gigabytes(int64_t rows, int64_t floats) {
  return 4e-9 * static_cast<double>(rows) * static_cast<double>(floats);
}

void kda(Bench& b, Ops& ops, int64_t rows) {
  const View x = b.activations(kHidden, DType::bf16), raw = b.activations(3 * kWidth),
             conv = b.activations(3 * kWidth);
  const View low_forget = b.activations(kDim), low_gate = b.activations(kDim), forget = b.activations(kWidth);
  const View gate = b.activations(kWidth), beta = b.activations(kHeads), o = b.activations(kWidth);
  const View normed = b.activations(kWidth, DType::bf16), y = b.activations(kHidden);
  const auto w = [&](int64_t out, int64_t in) { return b.weight(out, in, DType::bf16); };
  const kernels::Linear from_x[] = {{x, w(kWidth, kHidden), raw.col_range(0, kWidth), 0},
                                    {x, w(kWidth, kHidden), raw.col_range(kWidth, kWidth), 0},
                                    {x, w(kWidth, kHidden), raw.col_range(2 * kWidth, kWidth), 0},
                                    {x, w(kDim, kHidden), low_forget, 0},
                                    {x, w(kDim, kHidden), low_gate, 0},
                                    {x, w(kHeads, kHidden), beta, 0}};
  const int64_t in_width = 3 * kWidth + 2 * kDim + kHeads;
  b.time("kda_in", gflop(rows, in_width, kHidden), 0, [&] { ops.linears(from_x); });
  b.time("kda_q alone", gflop(rows, kWidth, kHidden), 0, [&] { ops.linear(from_x[0]); });
  b.time("kda_f_a alone", gflop(rows, kDim, kHidden), 0, [&] { ops.linear(from_x[3]); });
  const kernels::Linear low[] = {{low_forget, w(kWidth, kDim), forget, 0},
                                 {low_gate, w(kWidth, kDim), gate, 0}};
  b.time("kda_low", gflop(rows, 2 * kWidth, kDim), gigabytes(rows, 2 * kWidth), [&] { ops.linears(low); });
  kernels::KdaState state;
  state.state_offset = 0;
  state.window_offset = kHeads * kDim * kDim * 4;
  state.window_dtype = DType::bf16;
  state.slot_stride = state.window_offset + (kTaps - 1) * 3 * kWidth * 2;
  state.base = static_cast<std::byte*>(b.take(2 * state.slot_stride));
  ops.memory().zero(state.base, 2 * state.slot_stride);
  kernels::Sequence sequence;
  sequence.rows = static_cast<int32_t>(rows);
  sequence.slot = 1;
  sequence.kind = kernels::RowKind::prefill;
  kernels::StepView step;
  step.rows = sequence.rows;
  step.sequences = 1;
  step.sequence = b.array(std::vector{sequence});
  step.row_sequence = b.array(std::vector<int32_t>(static_cast<size_t>(rows), 0));
  const float* taps = b.floats(3 * kWidth * kTaps, 0.3f);
  b.time("kda_conv", 0, gigabytes(rows, 6 * kWidth), [&] {
    ops.kda_conv(step, {raw, taps, kTaps, state, conv});
  });
  const kernels::KdaGates gates{forget, beta, b.floats(kHeads, 1), b.floats(kWidth, 0), -5};
  b.time("kda_chunk", 0, gigabytes(rows, 5 * kWidth), [&] { ops.kda_chunk(step, {conv, gates, state, o}); });
  const float* norm = b.floats(kDim, 1);
  b.time("gated_norm", 0, gigabytes(rows, 2 * kWidth + kWidth / 2), [&] {
    ops.gated_norm({o, gate, norm, kDim, 1e-5f, normed});
  });
  b.time("kda_mix", gflop(rows, 2 * kWidth, kDim), gigabytes(rows, 3 * kWidth + kWidth / 2), [&] {
    ops.kda_mix(step, {.conv = {raw, taps, kTaps, state, conv},
                       .forget = low[0],
                       .gate = low[1],
                       .gates = gates,
                       .norm = {o, gate, norm, kDim, 1e-5f, normed}});
  });
  const kernels::Linear out{normed, w(kHidden, kWidth), y, 0};
  b.time("kda_o", gflop(rows, kHidden, kWidth), 0, [&] { ops.linear(out); });
}

void dsa(Bench& b, Ops& ops, int64_t rows) {
  const View x = b.activations(kHidden, DType::bf16), q_latent = b.activations(kQLora),
             latent = b.activations(kLatent);
  const View index_query = b.activations(kIndexHeads * kIndexDim), index_weight = b.activations(kIndexHeads);
  const View index_key = b.activations(kIndexDim), index_gate = b.activations(kIndexDim);
  const View q = b.activations(kHeads * kNope), query = b.activations(kHeads * kLatent),
             y = b.activations(kHidden);
  const auto fp8 = [&](int64_t out, int64_t in) { return b.weight(out, in, DType::f8_e4m3); };
  const auto half = [&](int64_t out, int64_t in) { return b.weight(out, in, DType::bf16); };
  const kernels::Linear from_x[] = {{x, fp8(kQLora, kHidden), q_latent, 0},
                                    {x, fp8(kLatent, kHidden), latent, 0},
                                    {x, half(kIndexHeads, kHidden), index_weight, 0},
                                    {x, half(kIndexDim, kHidden), index_key, 0},
                                    {x, half(kIndexDim, kHidden), index_gate, 0}};
  b.time("dsa_in", gflop(rows, kQLora + kLatent + kIndexHeads + 2 * kIndexDim, kHidden), 0,
         [&] { ops.linears(from_x); });
  const kernels::Linear from_latent[] = {{q_latent, fp8(kHeads * kNope, kQLora), q, 0},
                                         {q_latent, half(kIndexHeads * kIndexDim, kQLora), index_query, 0}};
  b.time("dsa_q_b and wq_b", gflop(rows, kHeads * kNope + kIndexHeads * kIndexDim, kQLora), 0,
         [&] { ops.linears(from_latent); });
  const View absorb_k = half(kHeads * kLatent, kNope).data, absorb_v = half(kHeads * kNope, kLatent).data;
  b.time("absorb_k", gflop(rows, kHeads * kLatent, kNope), gigabytes(rows, kHeads * kLatent), [&] {
    ops.head_linear({q, absorb_k, kHeads, query, 0});
  });
  b.time("absorb_v", gflop(rows, kHeads * kNope, kLatent), gigabytes(rows, kHeads * kLatent), [&] {
    ops.head_linear({query, absorb_v, kHeads, q, 0});
  });
  const kernels::Linear out{q, fp8(kHidden, kHeads * kNope), y, 0};
  b.time("dsa_o", gflop(rows, kHidden, kHeads * kNope), 0, [&] { ops.linear(out); });
}

void mhc(Bench& b, Ops& ops, int64_t rows) {
  const View streams = b.activations(kStreams * kHidden), y = b.activations(kHidden),
             x = b.activations(kHidden);
  const View mix = b.activations(kStreams + kStreams * kStreams), normed = b.activations(kHidden);
  const kernels::MhcWeights w{
      b.weight(2 * kStreams + kStreams * kStreams, kStreams * kHidden, DType::bf16).data,
      b.floats(2 * kStreams + kStreams * kStreams, 0), b.floats(3, 1)};
  kernels::MhcBoundary boundary{
      {mix, y, streams}, {streams, w, 1e-5f, 1e-6f, 20, mix, x, 0}, b.floats(kHidden, 1), normed};
  kernels::MhcBoundary decode = boundary;
  decode.collapse.decode_rows = kernels::kAllRows;
  ops.mhc_collapse(boundary.collapse);
  const int64_t some = std::min<int64_t>(rows, 256);
  const auto first = [&](kernels::MhcBoundary a) {
    for (View* v : {&a.expand.mix, &a.expand.y, &a.expand.streams, &a.collapse.streams, &a.collapse.mix,
                    &a.collapse.x, &a.normed})
      *v = v->row_range(0, some);
    // From the same streams and mapping each time.
    const View kept[] = {b.activations(kStreams * kHidden), b.activations(kStreams + kStreams * kStreams)};
    const View live[] = {streams, mix};
    const auto copy = [&](const View* to, const View* from) {
      for (int i = 0; i < 2; ++i)
        ops.memory().copy(to[i].data, from[i].data, some * from[i].cols * int64_t{sizeof(float)});
    };
    copy(kept, live);
    ops.mhc_boundary(a);
    std::vector<float> out(static_cast<size_t>(some * kHidden));
    ops.memory().download(out.data(), normed.data, some * kHidden * int64_t{sizeof(float)});
    copy(live, kept);
    return out;
  };
  b.compare("mhc_boundary", first(boundary), first(decode), 1e-5);
  b.time("mhc_boundary", 0, gigabytes(rows, (2 * kStreams + 2) * kHidden),
         [&] { ops.mhc_boundary(boundary); });
  b.time("mhc_boundary, decode form", 0, gigabytes(rows, (2 * kStreams + 2) * kHidden),
         [&] { ops.mhc_boundary(decode); });
}

void ffn(Bench& b, Ops& ops, int64_t rows, int64_t held) {
  const View x = b.activations(kHidden, DType::bf16), y = b.activations(kHidden);
  const auto fp8 = [&](int64_t out, int64_t in) { return b.weight(out, in, DType::f8_e4m3); };
  const auto dense = [&](int64_t inner, const View& out) {
    return kernels::Ffn{x,  fp8(inner, kHidden),      fp8(inner, kHidden),  fp8(kHidden, inner),
                        10, b.activations(2 * inner), b.activations(inner), out,
                        0};
  };
  const kernels::Ffn wide = dense(kDense, y), shared = dense(kSharedInner, b.activations(kHidden));
  b.time("dense ffn", gflop(rows, 3 * kDense, kHidden), 0, [&] { ops.ffn(wide); });
  b.time("shared expert alone", gflop(rows, 3 * kSharedInner, kHidden), 0, [&] { ops.ffn(shared); });
  const int64_t inner = 2048 * 72 / held;
  std::vector<kernels::ExpertWeights> experts;
  for (int64_t e = 0; e < held; ++e)
    experts.push_back({fp8(inner, kHidden), fp8(inner, kHidden), fp8(kHidden, inner)});
  kernels::Moe m;
  m.route = {x,
             b.weight(kExperts, kHidden, DType::bf16),
             b.floats(kExperts, 0),
             2.5f,
             b.activations(kExperts),
             b.activations(kChosen, DType::i32),
             b.activations(kChosen),
             0};
  m.experts.x = x;
  m.experts.ids = m.route.ids;
  m.experts.weights = m.route.weights;
  m.experts.experts = b.array(experts);
  m.experts.dtype = DType::f8_e4m3;
  m.experts.inner = inner;
  m.experts.expert_count = static_cast<int32_t>(held);
  m.experts.limit = 10;
  m.experts.out = b.activations(kHidden);
  m.experts.decode_rows = 0;
  m.shared = shared;
  m.out = y;
  const int64_t routed = rows * kChosen * held / kExperts;
  b.time("router", gflop(rows, kExperts, kHidden), 0, [&] { ops.route(m.route); });
  b.time("experts", gflop(routed, 3 * inner, kHidden), 0, [&] { ops.experts(m.experts); });
  b.time("moe", gflop(routed, 3 * inner, kHidden) + gflop(rows, 3 * kSharedInner + kExperts, kHidden), 0,
         [&] { ops.moe(m); });
}

Result<void> run(int64_t rows, int64_t held, std::string_view part, bool once) {
  GODWIT_ASSIGN(const std::unique_ptr<Ops> ops, kernels::make_ops("cuda", 0));
  kernels::Dims d;
  d.hidden = kHidden;
  d.streams = kStreams;
  d.kda_heads = kHeads;
  d.kda_key = kDim;
  d.conv_taps = kTaps;
  d.mla_heads = kHeads;
  d.latent = kLatent;
  d.nope = d.value = kNope;
  d.index_heads = kIndexHeads;
  d.index_dim = kIndexDim;
  d.index_pool = 4;
  d.index_topk = 2048;
  d.experts = kExperts;
  d.experts_topk = kChosen;
  d.expert_inner = 2048 * 72 / held;
  d.shared_inner = kSharedInner;
  d.widest_inner = kDense;
  kernels::StepLimits limits;
  limits.rows = rows;
  limits.decode_rows = limits.sequences = limits.sampled_rows = 1;
  limits.context = rows;
  const int64_t before = ops->memory().available();
  GODWIT_TRY(ops->prepare(d, limits));
  int64_t priced = 0;
  for (const kernels::ScratchEntry& e : ops->scratch(d, limits)) priced += e.bytes;
  fmt::print("{{\"rows\": {}, \"experts\": {}, \"scratch_mb\": {}, \"taken_by_prepare_mb\": {}, \"ops\": [\n",
             rows, held, priced >> 20, (before - ops->memory().available()) >> 20);
  struct Part {
    const char* name;
    void (*time)(Bench&, Ops&, int64_t rows, int64_t held);
  };
  constexpr Part kParts[] = {{"kda", [](Bench& b, Ops& o, int64_t r, int64_t) { kda(b, o, r); }},
                             {"dsa", [](Bench& b, Ops& o, int64_t r, int64_t) { dsa(b, o, r); }},
                             {"mhc", [](Bench& b, Ops& o, int64_t r, int64_t) { mhc(b, o, r); }},
                             {"ffn", ffn}};
  for (const Part& p : kParts) {
    if (part != "all" && part != p.name) continue;
    Bench b(*ops, rows, once);
    p.time(b, *ops, rows, held);
  }
  fmt::print("\n]}}\n");
  return {};
}

}  // namespace
}  // namespace godwit

int main(int argc, char** argv) {
  const int64_t rows = argc > 1 ? std::atol(argv[1]) : 8192, held = argc > 2 ? std::atol(argv[2]) : 72;
  const godwit::Result<void> done = godwit::run(rows, held, argc > 3 ? argv[3] : "all", argc > 4);
  if (done.ok()) return 0;
  fmt::print(stderr, "{}\n", done.error().message);
  return 1;
}
