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

}  // namespace

std::vector<StepPart> work_of(const model::ModelWeights& weights, const kernels::Dims& d,
                              const StepSize& size) {
  const double rows = static_cast<double>(size.rows), sequences = static_cast<double>(size.sequences);
  const auto latent_bytes = static_cast<double>(kernels::row_bytes(size.kv, d.latent));
  const auto key_bytes = static_cast<double>(kernels::row_bytes(size.kv, d.index_dim));
  // Of a row in the middle: those of a slice see ever more.
  const int64_t context = size.context + size.rows / size.sequences / 2;
  const int64_t whole_pools = context / d.index_pool;
  const auto pools = static_cast<double>(whole_pools);
  const double seen = static_cast<double>(std::min(context, d.index_topk + d.index_pool - 1));
  Sum kda, dsa, ffn, mhc, head;
  for (const model::LayerWeights& w : weights.layers) {
    mhc.weight({w.attention_hc.fn}, rows);
    mhc.weight({w.ffn_hc.fn}, rows);
    mhc.bytes += 2 * rows * 2 * static_cast<double>(d.streams * d.hidden) * 4;  // streams, in and out
    if (w.kind.attention == LayerAttention::kda) {
      for (const Weight& m :
           {w.kda.q, w.kda.k, w.kda.v, w.kda.f_a, w.kda.g_a, w.kda.f_b, w.kda.g_b, w.kda.b, w.kda.o})
        kda.weight(m, rows);
      const double state = static_cast<double>(d.kda_heads * d.kda_key * d.kda_key);
      kda.bytes += sequences * 2 * state * 4;
      kda.compute(rows * 7 * state, kBf16Rate);
    } else {
      for (const Weight& m : {w.dsa.q_a, w.dsa.kv_a, w.dsa.q_b, w.dsa.o, Weight{w.dsa.absorb_k},
                              Weight{w.dsa.absorb_v}, w.dsa.wq_b, w.dsa.wk, w.dsa.gate, w.dsa.weights_proj})
        dsa.weight(m, rows);
      dsa.bytes += rows * seen * latent_bytes;
      dsa.compute(rows * seen * static_cast<double>(d.mla_heads * d.latent) * 4, kBf16Rate);
      if (!w.dsa.shared_indexer && context > d.index_topk) {
        dsa.bytes += sequences * pools * key_bytes;
        dsa.compute(rows * pools * static_cast<double>(d.index_heads * d.index_dim) * 2, kBf16Rate);
      }
    }
    if (w.kind.mlp == LayerMlp::dense) {
      for (const Weight& m : {w.dense.gate, w.dense.up, w.dense.down}) ffn.weight(m, rows);
      continue;
    }
    ffn.weight(w.moe.router, rows);
    const model::FfnWeights& s = w.moe.shared;
    for (const Weight& m : {s.gate, s.up, s.down}) ffn.weight(m, rows);
    Sum expert;  // its table may lie on a device; all are of one shape and type
    const auto matrix = [&](int64_t out, int64_t in) {
      static const float scale = 0;
      Weight m{make_view(const_cast<float*>(&scale), w.moe.dtype, out, in)};
      m.scales = w.moe.dtype == DType::f8_e4m3 ? &scale : nullptr;
      return m;
    };
    for (const Weight& m :
         {matrix(w.moe.inner, d.hidden), matrix(w.moe.inner, d.hidden), matrix(d.hidden, w.moe.inner)})
      expert.weight(m, 1);
    ffn.bytes += size.distinct * expert.bytes;
    ffn.flops += size.choices * expert.flops;
    ffn.seconds += size.choices * expert.seconds;
  }
  head.weight(weights.lm_head, static_cast<double>(size.sampled), size.sampled > 0 ? 1 : 0);
  head.bytes += rows * static_cast<double>(d.hidden) * 2;
  return {part("kda", kda), part("dsa", dsa), part("ffn", ffn), part("mhc", mhc), part("head", head)};
}

}  // namespace godwit::bench
