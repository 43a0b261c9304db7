#include "bench/synthetic.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "model/glm5_next/dims.h"

namespace godwit::bench {
namespace {

using kernels::Dims;
using model::FfnWeights;
using model::ModelWeights;

constexpr int64_t kPool = int64_t{64} << 20;  // bytes of each pool
constexpr float kValue = Noise::kValue, kCode = Noise::kCode;

class Maker {
 public:
  Maker(const ModelConfig& config, const ShardPlan& plan, int64_t rank, kernels::Memory& memory, Noise& noise)
      : text_(config.text),
        fp8_(config.fp8_blocks),
        d_(model::rank_dims(config.text, plan)),
        plan_(plan),
        rank_(rank),
        noise_(noise),
        out_(std::make_unique<ModelWeights>(memory)) {}

  std::unique_ptr<ModelWeights> make(bool draft) {
    const int64_t vocabulary = plan_.vocabulary(rank_).size();
    out_->embed = plain(vocabulary, d_.hidden);
    out_->lm_head = plain(vocabulary, d_.hidden);
    out_->first_id = plan_.vocabulary(rank_).begin;
    out_->final_norm = constant(d_.hidden, 1);
    for (const LayerConfig& kind : text_.layers) {
      model::LayerWeights layer = block(kind);
      layer.attention_hc = mhc();
      layer.ffn_hc = mhc();
      out_->layers.push_back(layer);
    }
    if (draft) {
      model::DraftWeights& w = out_->draft.emplace();
      w.eh_proj = plain(d_.hidden, 2 * d_.hidden);
      w.token_norm = constant(d_.hidden, 1);
      w.hidden_norm = constant(d_.hidden, 1);
      w.layer = block({LayerAttention::dsa, LayerIndexer::full, LayerMlp::sparse});
      w.head_norm = constant(d_.hidden, 1);
    }
    return std::move(out_);
  }

 private:
  model::LayerWeights block(const LayerConfig& kind) {
    model::LayerWeights layer;
    layer.kind = kind;
    layer.input_norm = constant(d_.hidden, 1);
    layer.post_attention_norm = constant(d_.hidden, 1);
    if (kind.attention == LayerAttention::kda) {
      layer.kda = kda();
    } else {
      layer.dsa = dsa(kind.indexer == LayerIndexer::shared);
    }
    if (kind.mlp == LayerMlp::dense) {
      layer.dense = ffn(text_.intermediate_size / plan_.tp());
    } else {
      layer.moe = moe();
    }
    return layer;
  }

  Weight plain(int64_t rows, int64_t columns) {
    const int64_t bytes = rows * columns * size_of(DType::bf16);
    Weight w{make_view(out_->arena.take(bytes), DType::bf16, rows, columns)};
    noise_.fill(w.data.data, bytes);
    out_->bytes += bytes;
    return w;
  }

  Weight blocks(int64_t rows, int64_t columns) {
    if (!fp8_) return plain(rows, columns);
    Weight w{make_view(out_->arena.take(rows * columns), DType::f8_e4m3, rows, columns)};
    noise_.fill_codes(w.data.data, rows * columns);
    w.scale_stride = (columns + kFp8Block - 1) / kFp8Block;
    const int64_t scales = (rows + kFp8Block - 1) / kFp8Block * w.scale_stride;
    w.scales = constant(scales, kValue / kCode);
    out_->bytes += rows * columns + scales * int64_t{sizeof(float)};
    return w;
  }

  const float* constant(int64_t count, float value) {
    const std::vector<float> host(static_cast<size_t>(count), value);
    float* p = out_->arena.take_array<float>(count);
    out_->arena.memory().upload(p, host.data(), count * int64_t{sizeof(float)});
    return p;
  }

  const float* random(int64_t count) {
    float* p = out_->arena.take_array<float>(count);
    noise_.fill(p, count * int64_t{sizeof(float)});
    return p;
  }

  kernels::MhcWeights mhc() {
    const int64_t mapping = 2 * d_.streams + d_.streams * d_.streams;
    return {plain(mapping, d_.streams * d_.hidden).data, random(mapping), constant(3, 1)};
  }

  model::KdaWeights kda() {
    const int64_t width = d_.kda_heads * d_.kda_key;
    model::KdaWeights w;
    for (Weight* p : {&w.q, &w.k, &w.v}) *p = plain(width, d_.hidden);
    for (Weight* p : {&w.f_a, &w.g_a}) *p = plain(d_.kda_key, d_.hidden);
    for (Weight* p : {&w.f_b, &w.g_b}) *p = plain(width, d_.kda_key);
    w.b = plain(d_.kda_heads, d_.hidden);
    w.o = plain(d_.hidden, width);
    w.conv = random(3 * width * d_.conv_taps);
    w.a_exp = constant(d_.kda_heads, 1);
    w.dt_bias = random(width);
    w.o_norm = constant(d_.kda_key, 1);
    return w;
  }

  model::DsaWeights dsa(bool shared) {
    model::DsaWeights w;
    w.q_a = blocks(text_.q_lora_rank, d_.hidden);
    w.kv_a = blocks(d_.latent, d_.hidden);
    w.q_b = blocks(d_.mla_heads * d_.nope, text_.q_lora_rank);
    w.o = blocks(d_.hidden, d_.mla_heads * d_.value);
    w.q_a_norm = constant(text_.q_lora_rank, 1);
    w.kv_a_norm = constant(d_.latent, 1);
    w.absorb_k = plain(d_.mla_heads * d_.latent, d_.nope).data;
    w.absorb_v = plain(d_.mla_heads * d_.value, d_.latent).data;
    w.shared_indexer = shared;
    if (shared) return w;
    w.wq_b = plain(d_.index_heads * d_.index_dim, text_.q_lora_rank);
    w.wk = plain(d_.index_dim, d_.hidden);
    w.gate = plain(d_.index_dim, d_.hidden);
    w.weights_proj = plain(d_.index_heads, d_.hidden);
    w.k_norm_weight = constant(d_.index_dim, 1);
    w.k_norm_bias = constant(d_.index_dim, 0);
    w.ape = random(d_.index_pool * d_.index_dim);
    return w;
  }

  FfnWeights ffn(int64_t inner) {
    FfnWeights w;
    w.gate = blocks(inner, d_.hidden);
    w.up = blocks(inner, d_.hidden);
    w.down = blocks(d_.hidden, inner);
    return w;
  }

  model::MoeWeights moe() {
    model::MoeWeights w;
    w.router = plain(d_.experts, d_.hidden);
    w.bias = constant(d_.experts, 0);
    const Range experts = plan_.experts(rank_);
    w.first_expert = static_cast<int32_t>(experts.begin);
    w.expert_count = static_cast<int32_t>(experts.size());
    std::vector<kernels::ExpertWeights> table;
    for (int64_t e = 0; e < experts.size(); ++e) {
      const FfnWeights f = ffn(d_.expert_inner);
      table.push_back({f.gate, f.up, f.down});
    }
    w.dtype = table[0].gate.data.dtype;
    w.inner = d_.expert_inner;
    out_->expert_tables.push_back(std::move(table));
    const auto& kept = out_->expert_tables.back();
    w.experts = out_->arena.place_array(kept.data(), static_cast<int64_t>(kept.size()));
    w.shared = ffn(d_.shared_inner);
    return w;
  }

  const TextConfig& text_;
  bool fp8_;
  Dims d_;
  const ShardPlan& plan_;
  int64_t rank_;
  Noise& noise_;
  std::unique_ptr<ModelWeights> out_;
};

}  // namespace

Noise::Noise(kernels::Memory& memory) : memory_(memory) {
  std::mt19937 random(2026);
  std::normal_distribution<float> normal;
  std::vector<bf16> values(static_cast<size_t>(kPool) / sizeof(bf16));
  for (bf16& v : values) v = to_bf16(kValue * normal(random));
  std::vector<f8_e4m3> codes(static_cast<size_t>(kPool));
  for (f8_e4m3& c : codes) c = to_e4m3(kCode * normal(random));
  values_ = static_cast<std::byte*>(memory_.allocate(kPool));
  codes_ = static_cast<std::byte*>(memory_.allocate(kPool));
  memory_.upload(values_, values.data(), kPool);
  memory_.upload(codes_, codes.data(), kPool);
}

Noise::~Noise() {
  memory_.release(values_);
  memory_.release(codes_);
}

void Noise::fill(void* to, int64_t bytes) {
  copy_from(values_, to, bytes);
}

void Noise::fill_codes(void* to, int64_t bytes) {
  copy_from(codes_, to, bytes);
}

void Noise::copy_from(const std::byte* pool, void* to, int64_t bytes) {
  for (int64_t done = 0; done < bytes;) {
    next_ = next_ * 6364136223846793005u + 1442695040888963407u;
    const int64_t from = static_cast<int64_t>(next_ >> 33) % (kPool / 512) * 256;  // in the first half
    const int64_t n = std::min(bytes - done, kPool / 2);
    memory_.copy(static_cast<std::byte*>(to) + done, pool + from, n);
    done += n;
  }
}

std::unique_ptr<model::ModelWeights> make_weights(const ModelConfig& config, const ShardPlan& plan,
                                                  int64_t rank, kernels::Memory& memory, Noise& noise,
                                                  bool draft) {
  return Maker(config, plan, rank, memory, noise).make(draft);
}

}  // namespace godwit::bench
