#include "model/glm5_next/weights.h"

#include <cmath>
#include <cstring>
#include <map>
#include <string>

#include "base/log.h"
#include "model/glm5_next/device_placer.h"
#include "weights/load.h"

namespace godwit::model {
namespace {

using kernels::MhcWeights;

// Looks tensors up by name, cuts this rank's share and keeps what had to be copied.
class Binder {
 public:
  Binder(const Checkpoint& checkpoint, const ModelConfig& config, const ShardPlan& plan, int64_t rank,
         ModelWeights& out)
      : checkpoint_(checkpoint), config_(config), plan_(plan), rank_(rank), out_(out) {
    for (TensorSpec& spec : make_inventory(config)) {
      std::string name = spec.name;
      specs_.emplace(std::move(name), std::move(spec));
    }
  }

  const Error* error() const { return failed_ ? &error_ : nullptr; }

  Slice slice_of(const std::string& name) const { return plan_.slice(specs_.at(name), rank_); }

  Weight weight(const std::string& name) {
    const Weight host = host_weight(name);
    const Weight placed = out_.arena.room_for(host);
    if (out_.arena.in_place() || failed_) return placed;
    const Slice slice = slice_of(name);
    reads_.add(*checkpoint_.find(name), slice, static_cast<std::byte*>(placed.data.data));
    if (placed.scales) {
      auto* scales = reinterpret_cast<std::byte*>(const_cast<float*>(placed.scales));
      reads_.add(*checkpoint_.find(scale_name(name)), scale_slice(slice), scales);
    }
    return placed;
  }

  // Fills the rooms that weight() took on a device: past the mapping and the page cache.
  Result<void> read(const ReadOptions& options) {
    DevicePlacer placer(out_.arena.memory(), threads_for(reads_, options));
    GODWIT_ASSIGN(const ReadStatus status, read_direct(checkpoint_, reads_, placer, options));
    log_info("weights   {:.2f} GB of {} shards to the device in {:.1f} s, {:.2f} GB/s",
             static_cast<double>(status.bytes) * 1e-9, status.files, status.seconds,
             status.bytes_per_second() * 1e-9);
    return {};
  }

  // This rank's share where the checkpoint is mapped.
  Weight host_weight(const std::string& name) {
    auto whole = weight_view(checkpoint_, name, out_.copies);
    if (!whole.ok()) return fail(whole.error()), Weight{};
    Weight w = slice_weight(*whole, slice_of(name));
    out_.bytes += w.out() * w.in() * size_of(w.data.dtype);
    if (w.scales) out_.bytes += scale_count(w.out()) * scale_count(w.in()) * size_of(DType::f32);
    return w;
  }

  // This rank's rows of a small parameter, as f32.
  const float* floats(const std::string& name) { return keep(rank_rows(name)); }

  const float* keep(Buffer buffer) {
    out_.copies.push_back(std::move(buffer));
    const Buffer& kept = out_.copies.back();
    return out_.arena.place_array(kept.as<float>(), static_cast<int64_t>(kept.bytes() / sizeof(float)));
  }

  // [rows of this rank, columns] f32 of one tensor.
  Buffer rank_rows(const std::string& name) {
    auto whole = load_f32(checkpoint_, name);
    if (!whole.ok()) return fail(whole.error()), Buffer();
    const TensorSpec& spec = specs_.at(name);
    const Slice slice = slice_of(name);
    const int64_t columns = spec.columns();
    GODWIT_ASSERT(slice.columns.size() == columns);
    const size_t bytes = static_cast<size_t>(slice.rows.size() * columns) * sizeof(float);
    Buffer part(bytes);
    std::memcpy(part.data(), whole->as<float>() + slice.rows.begin * columns, bytes);
    out_.bytes += static_cast<int64_t>(bytes);
    return part;
  }

  MhcWeights mhc(const std::string& prefix) {
    return {weight(prefix + "_fn").data, floats(prefix + "_base"), floats(prefix + "_scale")};
  }

  KdaWeights kda(const std::string& p) {
    KdaWeights w;
    w.q = weight(p + "q_proj.weight");
    w.k = weight(p + "k_proj.weight");
    w.v = weight(p + "v_proj.weight");
    w.f_a = weight(p + "f_a_proj.weight");
    w.g_a = weight(p + "g_a_proj.weight");
    w.f_b = weight(p + "f_b_proj.weight");
    w.g_b = weight(p + "g_b_proj.weight");
    w.b = weight(p + "b_proj.weight");
    w.o = weight(p + "o_proj.weight");
    w.dt_bias = floats(p + "dt_bias");
    w.o_norm = floats(p + "o_norm.weight");
    w.conv = conv(p);
    w.a_exp = a_exp(p + "A_log");
    return w;
  }

  DsaWeights dsa(const std::string& p, bool shared) {
    DsaWeights w;
    w.q_a = weight(p + "q_a_proj.weight");
    w.kv_a = weight(p + "kv_a_proj_with_mqa.weight");
    w.q_b = weight(p + "q_b_proj.weight");
    w.o = weight(p + "o_proj.weight");
    w.q_a_norm = floats(p + "q_a_layernorm.weight");
    w.kv_a_norm = floats(p + "kv_a_layernorm.weight");
    absorb(p + "kv_b_proj.weight", w);
    w.shared_indexer = shared;
    if (shared) return w;
    w.wq_b = weight(p + "indexer.wq_b.weight");
    w.wk = weight(p + "indexer.wk.weight");
    w.gate = weight(p + "indexer.index_kpool_compress_gate");
    w.weights_proj = weight(p + "indexer.weights_proj.weight");
    w.k_norm_weight = floats(p + "indexer.k_norm.weight");
    w.k_norm_bias = floats(p + "indexer.k_norm.bias");
    w.ape = floats(p + "indexer.index_kpool_compress_ape");
    return w;
  }

  FfnWeights ffn(const std::string& p) {
    return {weight(p + "gate_proj.weight"), weight(p + "up_proj.weight"), weight(p + "down_proj.weight")};
  }

  MoeWeights moe(const std::string& p) {
    MoeWeights w;
    w.router = weight(p + "gate.weight");
    w.bias = floats(p + "gate.e_score_correction_bias");
    const Range experts = plan_.experts(rank_);
    w.first_expert = static_cast<int32_t>(experts.begin);
    w.expert_count = static_cast<int32_t>(experts.size());
    std::vector<kernels::ExpertWeights> table;
    for (int64_t e = experts.begin; e < experts.end; ++e) {
      const FfnWeights f = ffn(p + "experts." + std::to_string(e) + ".");
      table.push_back({f.gate, f.up, f.down});
    }
    if (!table.empty()) {
      w.dtype = table[0].gate.data.dtype;
      w.inner = table[0].gate.out();
    }
    out_.expert_tables.push_back(std::move(table));
    w.experts = out_.arena.place_array(out_.expert_tables.back().data(), w.expert_count);
    if (config_.text.n_shared_experts > 0) w.shared = ffn(p + "shared_experts.");
    return w;
  }

  // What all layers have but mHC.
  LayerWeights block(const std::string& p, const LayerConfig& kind) {
    LayerWeights layer;
    layer.kind = kind;
    layer.input_norm = floats(p + "input_layernorm.weight");
    layer.post_attention_norm = floats(p + "post_attention_layernorm.weight");
    if (kind.attention == LayerAttention::kda) {
      layer.kda = kda(p + "self_attn.");
    } else {
      layer.dsa = dsa(p + "self_attn.", kind.indexer == LayerIndexer::shared);
    }
    if (kind.mlp == LayerMlp::dense) {
      layer.dense = ffn(p + "mlp.");
    } else {
      layer.moe = moe(p + "mlp.");
    }
    return layer;
  }

  DraftWeights draft(const std::string& p) {
    DraftWeights w;
    w.eh_proj = weight(p + "eh_proj.weight");
    w.token_norm = floats(p + "enorm.weight");
    w.hidden_norm = floats(p + "hnorm.weight");
    w.layer = block(p, {LayerAttention::dsa, LayerIndexer::full, LayerMlp::sparse});
    w.head_norm = floats(p + "shared_head.norm.weight");
    return w;
  }

 private:
  void fail(Error error) {
    if (!failed_) error_ = std::move(error);
    failed_ = true;
  }

  // q, k and v are cut by head each and joined again: a plain cut of the concatenation would be wrong (trap
  // T15).
  const float* conv(const std::string& p) {
    std::vector<Buffer> parts;
    size_t bytes = 0;
    for (const char* which : {"q", "k", "v"}) {
      parts.push_back(rank_rows(p + which + "_conv1d.weight"));
      bytes += parts.back().bytes();
    }
    Buffer joined(bytes);
    size_t at = 0;
    for (const Buffer& part : parts) {
      std::memcpy(joined.as<char>() + at, part.data(), part.bytes());
      at += part.bytes();
    }
    return keep(std::move(joined));
  }

  const float* a_exp(const std::string& name) {
    Buffer b = rank_rows(name);
    for (size_t i = 0; i < b.bytes() / sizeof(float); ++i) b.as<float>()[i] = std::exp(b.as<float>()[i]);
    return keep(std::move(b));
  }

  // kv_b holds, per head, nope rows of W_K then v rows of W_V (trap T28). The absorbed form multiplies by W_K
  // transposed.
  void absorb(const std::string& name, DsaWeights& w) {
    const Weight kv_b = host_weight(name);
    if (failed_) return;
    const int64_t nope = config_.text.qk_head_dim;
    const int64_t value = config_.text.v_head_dim;
    const int64_t latent = kv_b.in();
    const int64_t heads = kv_b.out() / (nope + value);
    const DType dtype = kv_b.data.dtype;
    const int64_t size = size_of(dtype);
    Buffer k(static_cast<size_t>(heads * latent * nope * size));
    Buffer v(static_cast<size_t>(heads * value * latent * size));
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t n = 0; n < nope; ++n) {
        const char* row = kv_b.data.row_range(h * (nope + value) + n, 1).row<char>(0);
        for (int64_t l = 0; l < latent; ++l)
          std::memcpy(k.as<char>() + ((h * latent + l) * nope + n) * size, row + l * size,
                      static_cast<size_t>(size));
      }
      for (int64_t e = 0; e < value; ++e) {
        const View row = kv_b.data.row_range(h * (nope + value) + nope + e, 1);
        std::memcpy(v.as<char>() + (h * value + e) * latent * size, row.data,
                    static_cast<size_t>(latent * size));
      }
    }
    w.absorb_k = out_.arena.place(make_view(k.data(), dtype, heads * latent, nope));
    w.absorb_v = out_.arena.place(make_view(v.data(), dtype, heads * value, latent));
    out_.copies.push_back(std::move(k));
    out_.copies.push_back(std::move(v));
  }

  const Checkpoint& checkpoint_;
  const ModelConfig& config_;
  const ShardPlan& plan_;
  int64_t rank_;
  ModelWeights& out_;
  std::map<std::string, TensorSpec> specs_;
  ReadList reads_;
  bool failed_ = false;
  Error error_;
};

}  // namespace

Result<std::unique_ptr<ModelWeights>> bind_weights(const Checkpoint& checkpoint, const ModelConfig& config,
                                                   const ShardPlan& plan, int64_t rank,
                                                   kernels::Memory& memory, bool draft,
                                                   const ReadOptions& reads) {
  auto out = std::make_unique<ModelWeights>(memory);
  Binder bind(checkpoint, config, plan, rank, *out);
  const std::string root = "model.language_model.";
  out->embed = bind.weight(root + "embed_tokens.weight");
  out->lm_head = bind.weight("lm_head.weight");
  out->first_id = plan.vocabulary(rank).begin;
  out->final_norm = bind.floats(root + "norm.weight");
  for (size_t i = 0; i < config.text.layers.size(); ++i) {
    const std::string p = root + "layers." + std::to_string(i) + ".";
    LayerWeights layer = bind.block(p, config.text.layers[i]);
    layer.attention_hc = bind.mhc(p + "hc_attn");
    layer.ffn_hc = bind.mhc(p + "hc_ffn");
    out->layers.push_back(layer);
    if (const Error* error = bind.error()) return *error;
  }
  if (draft) out->draft = bind.draft(root + "layers." + std::to_string(config.text.layers.size()) + ".");
  if (const Error* error = bind.error()) return *error;
  if (!out->arena.in_place()) {
    GODWIT_TRY(bind.read(reads));
    // The copies on the host have been placed.
    out->copies.clear();
    out->expert_tables.clear();
  }
  return out;
}

}  // namespace godwit::model
