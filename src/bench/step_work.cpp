#include "bench/step_work.h"

#include <algorithm>

#include "kernels/cache_format.h"

namespace godwit::bench {
namespace {

constexpr double kBf16Rate = 989e12, kFp8Rate = 1979e12;  // FLOP/s of the data sheet, dense

struct Sum {
  double bytes = 0, flops = 0, seconds = 0;  // seconds of computing at the rate of each type

  // `times` products of a matrix that is read once.
  void weight(const Weight& w, double times, double reads = 1) {
    if (w.empty()) return;
    const double elements = static_cast<double>(w.out() * w.in());
    bytes += reads * elements * static_cast<double>(size_of(w.data.dtype));
    if (w.scales) bytes += reads * elements / (kFp8Block * kFp8Block) * 4;
    compute(2 * elements * times, w.data.dtype == DType::f8_e4m3 ? kFp8Rate : kBf16Rate);
  }
  void compute(double count, double rate) {
    flops += count;
    seconds += count / rate;
  }
};

StepPart part(const char* name, const Sum& s) {
  StepPart p;
  p.name = name;
  p.gigabytes = s.bytes / 1e9;
  p.gigaflops = s.flops / 1e9;
  p.roof_us = 1e6 * std::max(s.bytes / kRoofBandwidth, s.seconds);
  return p;
}

// Of one layer and all rows.
class Work {
 public:
  Work(const kernels::Dims& dims, const StepSize& size)
      : d_(dims),
        size_(size),
        rows_(static_cast<double>(size.rows)),
        sequences_(static_cast<double>(size.sequences)),
        // Of a row in the middle: those of a slice see ever more.
        context_(size.context + size.rows / size.sequences / 2) {}

  void mhc(Sum& s, const model::LayerWeights& w) const {
    s.weight({w.attention_hc.fn}, rows_);
    s.weight({w.ffn_hc.fn}, rows_);
    s.bytes += 2 * rows_ * 2 * static_cast<double>(d_.streams * d_.hidden) * 4;  // streams, in and out
  }

  void kda(Sum& s, const model::KdaWeights& w) const {
    for (const Weight& m : {w.q, w.k, w.v, w.f_a, w.g_a, w.f_b, w.g_b, w.b, w.o}) s.weight(m, rows_);
    const double state = static_cast<double>(d_.kda_heads * d_.kda_key * d_.kda_key);
    s.bytes += sequences_ * 2 * state * 4;
    s.compute(rows_ * 7 * state, kBf16Rate);
  }

  void dsa(Sum& s, const model::DsaWeights& w, bool selects) const {
    for (const Weight& m : {w.q_a, w.kv_a, w.q_b, w.o, Weight{w.absorb_k}, Weight{w.absorb_v}})
      s.weight(m, rows_);
    const double seen = static_cast<double>(std::min(context_, d_.index_topk + d_.index_pool - 1));
    s.bytes += rows_ * seen * static_cast<double>(kernels::row_bytes(size_.kv, d_.latent));
    s.compute(rows_ * seen * static_cast<double>(d_.mla_heads * d_.latent) * 4, kBf16Rate);
    if (!selects) return;
    for (const Weight& m : {w.wq_b, w.wk, w.gate, w.weights_proj}) s.weight(m, rows_);
    if (context_ <= d_.index_topk) return;
    const int64_t whole_pools = context_ / d_.index_pool;
    const auto pools = static_cast<double>(whole_pools);
    s.bytes += sequences_ * pools * static_cast<double>(kernels::row_bytes(size_.kv, d_.index_dim));
    s.compute(rows_ * pools * static_cast<double>(d_.index_heads * d_.index_dim) * 2, kBf16Rate);
  }

  void ffn(Sum& s, const model::LayerWeights& w) const {
    if (w.kind.mlp == LayerMlp::dense) {
      for (const Weight& m : {w.dense.gate, w.dense.up, w.dense.down}) s.weight(m, rows_);
      return;
    }
    s.weight(w.moe.router, rows_);
    const model::FfnWeights& shared = w.moe.shared;
    for (const Weight& m : {shared.gate, shared.up, shared.down}) s.weight(m, rows_);
    Sum expert;  // its table may lie on a device; all are of one shape and type
    const auto matrix = [&](int64_t out, int64_t in) {
      static const float scale = 0;
      Weight m{make_view(const_cast<float*>(&scale), w.moe.dtype, out, in)};
      m.scales = w.moe.dtype == DType::f8_e4m3 ? &scale : nullptr;
      return m;
    };
    for (const Weight& m :
         {matrix(w.moe.inner, d_.hidden), matrix(w.moe.inner, d_.hidden), matrix(d_.hidden, w.moe.inner)})
      expert.weight(m, 1);
    s.bytes += size_.distinct * expert.bytes;
    s.flops += size_.choices * expert.flops;
    s.seconds += size_.choices * expert.seconds;
  }

  void head(Sum& s, const Weight& lm_head) const {
    s.weight(lm_head, static_cast<double>(size_.sampled), size_.sampled > 0 ? 1 : 0);
    s.bytes += rows_ * static_cast<double>(d_.hidden) * 2;
  }

 private:
  const kernels::Dims& d_;
  const StepSize& size_;
  double rows_, sequences_;
  int64_t context_;
};

}  // namespace

std::vector<StepPart> work_of(const model::ModelWeights& weights, const kernels::Dims& dims,
                              const StepSize& size) {
  const Work work(dims, size);
  Sum kda, dsa, ffn, mhc, head;
  for (const model::LayerWeights& w : weights.layers) {
    work.mhc(mhc, w);
    if (w.kind.attention == LayerAttention::kda) {
      work.kda(kda, w.kda);
    } else {
      work.dsa(dsa, w.dsa, !w.dsa.shared_indexer);
    }
    work.ffn(ffn, w);
  }
  work.head(head, weights.lm_head);
  return {part("kda", kda), part("dsa", dsa), part("ffn", ffn), part("mhc", mhc), part("head", head)};
}

StepPart draft_work(const model::ModelWeights& weights, const kernels::Dims& dims, const StepSize& size,
                    bool selects) {
  const Work work(dims, size);
  const model::DraftWeights& w = *weights.draft;
  Sum sum;
  sum.weight(w.eh_proj, static_cast<double>(size.rows));
  work.dsa(sum, w.layer.dsa, selects);
  work.ffn(sum, w.layer);
  work.head(sum, weights.lm_head);
  return part(selects ? "first" : "step", sum);
}

}  // namespace godwit::bench
