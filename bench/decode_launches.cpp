// The latency-bound launches of a decode step at the shapes of one rank (TP4), each alone and in the chain of
// launches it runs in: what a launch adds to a chain is what counts, because programmatic launches overlap.
// One JSON object to stdout. Usage: decode_launches [NAME …]
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <random>

#include "kernels/make_ops.h"

namespace godwit {
namespace {

using Clock = std::chrono::steady_clock;
using kernels::Ops;

constexpr int64_t kHidden = 4096, kHeads = 16, kDim = 128, kWidth = kHeads * kDim, kStreams = 4;
constexpr int64_t kVocab = 154'880, kVocabShare = 38'720, kExperts = 288, kChosen = 8;
constexpr int kLayers = 8;  // of a chain: their weights are past the L2 cache
constexpr int64_t kMostRows = 64;
constexpr float kEps = 1e-5f;

class Bench {
 public:
  explicit Bench(Ops& backend) : ops(backend), memory_(backend.memory()) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    noise_.resize(size_t{4} << 20);
    for (float& v : noise_) v = normal(random);
  }
  ~Bench() {
    for (void* p : owned_) memory_.release(p);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  Ops& ops;

  // Normal numbers times `scale`; the same few million again and again.
  View values(int64_t rows, int64_t cols, float scale = 1, DType dtype = DType::f32) {
    const int64_t count = rows * cols, size = size_of(dtype);
    std::byte* p = take(count * size);
    std::vector<std::byte> some(noise_.size() * static_cast<size_t>(size));
    for (size_t i = 0; i < noise_.size(); ++i) {
      const float v = noise_[(i + start_) % noise_.size()] * scale;
      if (dtype == DType::f32) {
        std::memcpy(some.data() + 4 * i, &v, 4);
      } else {
        const bf16 narrow = to_bf16(v);
        std::memcpy(some.data() + 2 * i, &narrow, 2);
      }
    }
    start_ += 1'299'709;  // the next does not begin with the same numbers
    const auto piece = static_cast<int64_t>(some.size());
    for (int64_t at = 0; at < count * size; at += piece)
      memory_.upload(p + at, some.data(), std::min(piece, count * size - at));
    return make_view(p, dtype, rows, cols);
  }
  Weight weight(int64_t out, int64_t in) {
    Weight w;
    w.data = values(out, in, 0.02f, DType::bf16);
    return w;
  }
  const float* floats(int64_t count, float scale = 1) {
    return static_cast<const float*>(values(1, count, scale).data);
  }
  View empty(int64_t rows, int64_t cols, DType dtype = DType::f32) {
    std::byte* p = take(rows * cols * size_of(dtype));
    memory_.zero(p, rows * cols * size_of(dtype));
    return make_view(p, dtype, rows, cols);
  }
  template <class T>
  const T* upload(const std::vector<T>& v) {
    const auto bytes = static_cast<int64_t>(v.size() * sizeof(T));
    std::byte* p = take(bytes);
    memory_.upload(p, v.data(), bytes);
    return static_cast<const T*>(static_cast<void*>(p));
  }
  std::byte* take(int64_t bytes) {
    owned_.push_back(memory_.allocate(bytes));
    return static_cast<std::byte*>(owned_.back());
  }

  // Microseconds a layer of what `issue` puts on the stream for each of kLayers, recorded as one graph.
  struct Times {
    double median = 0, least = 0, most = 0;
  };
  Times time(const std::function<void(int layer)>& issue) {
    const auto all = [&] {
      for (int layer = 0; layer < kLayers; ++layer) issue(layer);
    };
    all();  // what is set up by the first launch of a kernel
    wait();
    const std::unique_ptr<kernels::Recording> graph = ops.record(all);
    constexpr int kReplays = 12, kRounds = 7;
    std::vector<double> us;
    for (int round = 0; round <= kRounds; ++round) {
      wait();
      const auto start = Clock::now();
      for (int i = 0; i < kReplays; ++i) graph->replay();
      wait();
      const std::chrono::duration<double, std::micro> took = Clock::now() - start;
      if (round > 0) us.push_back(took.count() / (kReplays * kLayers));
    }
    std::sort(us.begin(), us.end());
    return {us[us.size() / 2], us.front(), us.back()};
  }

  // `with` and `without` are chains that differ by the launches in question.
  void report(const char* name, int64_t rows, const Times& t, const char* note = "") {
    fmt::print(
        "{}\n  {{\"name\": \"{}\", \"rows\": {}, \"us\": {:.2f}, \"least\": {:.2f}, \"most\": {:.2f}{}}}",
        first_ ? "" : ",", name, rows, t.median, t.least, t.most, note);
    std::fflush(stdout);
    first_ = false;
  }
  void compare(const char* name, int64_t rows, const std::function<void(int)>& alone,
               const std::function<void(int)>& without, const std::function<void(int)>& with) {
    if (alone) report(name, rows, time(alone), ", \"how\": \"alone\"");
    if (!with) return;
    const Times bare = time(without), full = time(with);
    report(name, rows, {full.median - bare.median, full.least - bare.median, full.most - bare.median},
           fmt::format(", \"how\": \"in chain\", \"chain\": {:.2f}", full.median).c_str());
  }

 private:
  void wait() {
    float ignored;
    memory_.download(&ignored, owned_.front(), 4);
  }

  kernels::Memory& memory_;
  std::vector<void*> owned_;
  std::vector<float> noise_;
  size_t start_ = 0;
  bool first_ = true;
};

// A decode step: `sequences` of `each` rows.
kernels::StepView step_of(Bench& b, int32_t sequences, int32_t each, kernels::RowKind kind) {
  std::vector<kernels::Sequence> all;
  std::vector<int32_t> row_sequence;
  for (int32_t s = 0; s < sequences; ++s) {
    kernels::Sequence q;
    q.first = 8192;
    q.row = s * each;
    q.rows = each;
    q.slot = s;
    q.kind = kind;
    all.push_back(q);
    row_sequence.insert(row_sequence.end(), static_cast<size_t>(each), s);
  }
  kernels::StepView v;
  v.rows = v.decode_rows = sequences * each;
  v.sequences = v.decode_sequences = sequences;
  v.sequence = b.upload(all);
  v.row_sequence = b.upload(row_sequence);
  v.ids = b.upload(std::vector<int32_t>(static_cast<size_t>(v.rows), 5));
  return v;
}

void kda(Bench& b) {
  struct Layer {
    std::vector<Weight> in;
    Weight out, f_b, g_b;
    kernels::KdaState state;
    const float *conv, *a_exp, *dt_bias, *norm;
  };
  constexpr int64_t kPending = 6, kWindowRow = 3 * kWidth * 2;
  int64_t at = 0;
  const auto place = [&](int64_t bytes) { return std::exchange(at, at + bytes); };
  kernels::KdaState layout;
  layout.window_dtype = DType::bf16;
  layout.state_offset = place(kWidth * kDim * 4);
  layout.window_offset = place(3 * kWindowRow);
  layout.pending_raw_offset = place(kPending * kWindowRow);
  layout.pending_key_offset = place(kPending * kWidth * 4);
  layout.pending_delta_offset = place(kPending * kWidth * 4);
  layout.pending_decay_offset = place(kPending * kWidth * 4);
  layout.slot_stride = at * kLayers;  // all layers of a slot lie together
  std::byte* slots = b.take(kMostRows * layout.slot_stride);
  b.ops.memory().zero(slots, kMostRows * layout.slot_stride);
  std::vector<Layer> layers;
  for (int i = 0; i < kLayers; ++i) {
    Layer l;
    for (const int64_t n : {kWidth, kWidth, kWidth, kDim, kDim, kHeads}) l.in.push_back(b.weight(n, kHidden));
    l.out = b.weight(kHidden, kWidth);
    l.f_b = b.weight(kWidth, kDim), l.g_b = b.weight(kWidth, kDim);
    l.state = layout;
    l.state.base = slots + i * at;
    l.conv = b.floats(3 * kWidth * 4), l.a_exp = b.floats(kHeads), l.dt_bias = b.floats(kWidth);
    l.norm = b.floats(kDim);
    layers.push_back(l);
  }
  const View x = b.values(kMostRows, kHidden), raw = b.empty(kMostRows, 3 * kWidth),
             y = b.empty(kMostRows, kHidden);
  const View conv = b.empty(kMostRows, 3 * kWidth), low_f = b.empty(kMostRows, kDim),
             low_g = b.empty(kMostRows, kDim);
  const View forget = b.empty(kMostRows, kWidth), gate = b.empty(kMostRows, kWidth),
             beta = b.empty(kMostRows, kHeads);
  const View o = b.empty(kMostRows, kWidth);
  struct Case {
    int32_t sequences, each;
    kernels::RowKind kind;
    const char* name;
  };
  for (const Case& c :
       {Case{1, 1, kernels::RowKind::decode, "kda_mix"}, Case{8, 1, kernels::RowKind::decode, "kda_mix"},
        Case{32, 1, kernels::RowKind::decode, "kda_mix"}, Case{64, 1, kernels::RowKind::decode, "kda_mix"},
        Case{1, 6, kernels::RowKind::verify, "kda_mix of a verify"}}) {
    const kernels::StepView step = step_of(b, c.sequences, c.each, c.kind);
    const auto rows = [&](const View& v) { return v.row_range(0, step.rows); };
    const auto in = [&](int i) {
      const auto& w = layers[static_cast<size_t>(i)].in;
      const View r = rows(raw);
      const kernels::Linear all[] = {{rows(x), w[0], r.col_range(0, kWidth)},
                                     {rows(x), w[1], r.col_range(kWidth, kWidth)},
                                     {rows(x), w[2], r.col_range(2 * kWidth, kWidth)},
                                     {rows(x), w[3], rows(low_f)},
                                     {rows(x), w[4], rows(low_g)},
                                     {rows(x), w[5], rows(beta)}};
      b.ops.linears(all);
    };
    const auto mix = [&](int i) {
      const Layer& l = layers[static_cast<size_t>(i)];
      b.ops.kda_mix(step, {.conv = {rows(raw), l.conv, 4, l.state, rows(conv)},
                           .forget = {rows(low_f), l.f_b, rows(forget)},
                           .gate = {rows(low_g), l.g_b, rows(gate)},
                           .gates = {rows(forget), rows(beta), l.a_exp, l.dt_bias, -5},
                           .norm = {rows(o), rows(gate), l.norm, kDim, kEps, rows(o)}});
    };
    const auto out = [&](int i) { b.ops.linear({rows(o), layers[static_cast<size_t>(i)].out, rows(y)}); };
    b.compare(
        c.name, step.rows, mix,
        [&](int i) {
          in(i);
          out(i);
        },
        [&](int i) {
          in(i);
          mix(i);
          out(i);
        });
  }
}

void mhc(Bench& b) {
  std::vector<kernels::MhcWeights> weights;
  std::vector<Weight> in;
  for (int i = 0; i < kLayers; ++i) {
    kernels::MhcWeights w;
    w.fn = b.values(24, kStreams * kHidden, 0.01f, DType::bf16);
    w.base = b.floats(24);
    w.scale = b.floats(3, 0.1f);
    weights.push_back(w);
    in.push_back(b.weight(kHidden, kHidden));
  }
  const float* norm = b.floats(kHidden);
  const View streams = b.values(kMostRows, kStreams * kHidden), mix = b.values(kMostRows, 20, 0.3f);
  const View x = b.empty(kMostRows, kHidden), y = b.values(kMostRows, kHidden),
             normed = b.values(kMostRows, kHidden);
  for (const int64_t count : {1, 6, 8, 32, 64}) {
    const auto rows = [&](const View& v) { return v.row_range(0, count); };
    const auto product = [&](int i) { b.ops.linear({rows(normed), in[static_cast<size_t>(i)], rows(y)}); };
    const auto boundary = [&](int i) {
      const kernels::MhcCollapse collapse{
          rows(streams), weights[static_cast<size_t>(i)], kEps, 1e-6f, 20, rows(mix), rows(x)};
      b.ops.mhc_boundary({{rows(mix), rows(y), rows(streams)}, collapse, norm, rows(normed)});
    };
    b.compare("mhc_boundary", count, boundary, product, [&](int i) {
      product(i);
      boundary(i);
    });
  }
}

void route(Bench& b) {
  std::vector<Weight> router, in;
  for (int i = 0; i < kLayers; ++i) {
    router.push_back(b.weight(kExperts, kHidden));
    in.push_back(b.weight(kHidden, kHidden));
  }
  const float* bias = b.floats(kExperts, 0.1f);
  const View x = b.values(kMostRows, kHidden), logits = b.empty(kMostRows, kExperts),
             y = b.empty(kMostRows, kHidden);
  const View ids = b.empty(kMostRows, kChosen, DType::i32), weights = b.empty(kMostRows, kChosen);
  for (const int64_t count : {1, 8, 32}) {
    const auto rows = [&](const View& v) { return v.row_range(0, count); };
    const auto choose = [&](int i) {
      b.ops.route(
          {rows(x), router[static_cast<size_t>(i)], bias, 2.5f, rows(logits), rows(ids), rows(weights)});
    };
    const auto product = [&](int i) { b.ops.linear({rows(x), in[static_cast<size_t>(i)], rows(y)}); };
    b.compare("route", count, choose, product, [&](int i) {
      product(i);
      choose(i);
    });
  }
}

void draw(Bench& b) {
  const Weight lm_head = b.weight(kVocabShare, kHidden);
  const View hidden = b.values(kMostRows, kHidden), logits = b.values(kMostRows, kVocab, 3);
  std::byte* drawn = b.take(kMostRows * static_cast<int64_t>(sizeof(sample::Sampled)));
  std::byte* last = b.take(kMostRows * 4);
  struct Case {
    const char* name;
    float temperature, top_p;
    int32_t top_k, logprobs;
  };
  for (const Case& c : {Case{"sample, greedy", 0, 1, 0, -1}, Case{"sample, temperature 1", 1, 1, 0, -1},
                        Case{"sample, top_p 0.95", 1, 0.95f, 0, -1}, Case{"sample, top_k 40", 1, 1, 40, -1},
                        Case{"sample, greedy, 5 logprobs", 0, 1, 0, 5}}) {
    for (const int64_t count : {1, 6, 32}) {
      std::vector<sample::SamplingRow> all(static_cast<size_t>(count));
      for (size_t i = 0; i < all.size(); ++i) {
        all[i].slot = static_cast<int32_t>(i);
        all[i].position = 100 + static_cast<int64_t>(i);
        all[i].temperature = c.temperature;
        all[i].top_p = c.top_p;
        all[i].top_k = c.top_k;
        all[i].top_logprobs = c.logprobs;
      }
      kernels::Sample s;
      s.logits = logits.row_range(0, count);
      s.rows = b.upload(all);
      s.last_token = static_cast<int32_t*>(static_cast<void*>(last));
      s.out = static_cast<sample::Sampled*>(static_cast<void*>(drawn));
      const View own = s.logits.col_range(0, kVocabShare);
      const auto head = [&](int) { b.ops.lm_head({hidden.row_range(0, count), lm_head, own}); };
      const auto one = [&](int) { b.ops.sample(s); };
      b.compare(c.name, count, one, head, [&](int i) {
        head(i);
        one(i);
      });
    }
  }
}

int run(const std::vector<std::string>& names) {
  auto made = kernels::make_ops("cuda", 0);
  if (!made.ok()) {
    fmt::print(stderr, "{}\n", made.error().message);
    return 1;
  }
  Ops& ops = **made;
  kernels::Dims dims;
  dims.hidden = dims.widest_inner = kHidden;
  dims.streams = kStreams;
  dims.vocab = kVocab;
  dims.kda_heads = kHeads;
  dims.kda_key = kDim;
  dims.conv_taps = 4;
  dims.experts = kExperts;
  dims.experts_topk = kChosen;
  dims.expert_inner = dims.shared_inner = 512;
  kernels::StepLimits limits;
  limits.rows = limits.decode_rows = limits.sequences = limits.sampled_rows = kMostRows;
  limits.context = 8192;
  if (const auto prepared = ops.prepare(dims, limits); !prepared.ok()) {
    fmt::print(stderr, "{}\n", prepared.error().message);
    return 1;
  }
  const std::pair<const char*, void (*)(Bench&)> parts[] = {
      {"kda", kda}, {"mhc", mhc}, {"route", route}, {"draw", draw}};
  fmt::print("{{\"layers\": {}, \"launches\": [", kLayers);
  bool any = false;
  for (const auto& [name, part] : parts) {
    if (!names.empty() && std::find(names.begin(), names.end(), name) == names.end()) continue;
    if (std::exchange(any, true)) fmt::print(",");
    Bench bench(ops);
    part(bench);
  }
  fmt::print("\n]}}\n");
  return 0;
}

}  // namespace
}  // namespace godwit

int main(int argc, char** argv) {
  return godwit::run({argv + 1, argv + argc});
}
