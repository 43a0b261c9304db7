#include "weights/inventory.h"

#include <fmt/format.h>

namespace godwit {
namespace {

// Lists the tensors of one configuration in the order of spec §3.3.
class Lister {
 public:
  explicit Lister(const ModelConfig& config) : text_(config.text), vision_(config.vision) {}

  std::vector<TensorSpec> list() {
    add("model.language_model.embed_tokens.weight", {text_.vocab_size, text_.hidden_size}, Storage::bf16,
        Component::embed, Split::rows);
    add("model.language_model.norm.weight", {text_.hidden_size}, Storage::bf16, Component::norms);
    add("lm_head.weight", {text_.vocab_size, text_.hidden_size}, Storage::bf16, Component::lm_head,
        Split::rows);
    const int64_t main_layers = text_.num_hidden_layers;
    for (int64_t i = 0; i < main_layers; ++i) layer(i, text_.layers[static_cast<size_t>(i)]);
    nextn_ = true;
    for (int64_t i = 0; i < text_.num_nextn_predict_layers; ++i) nextn_layer(main_layers + i);
    nextn_ = false;
    vision();
    return std::move(out_);
  }

 private:
  void add(std::string name, std::vector<int64_t> shape, Storage storage, Component component,
           Split split = Split::replicated, int expert = -1) {
    out_.push_back({std::move(name), std::move(shape), storage, component, split, nextn_, expert});
  }

  void layer(int64_t index, const LayerConfig& layer) {
    const std::string prefix = fmt::format("model.language_model.layers.{}.", index);
    for (const char* site : {"attn", "ffn"}) {
      add(fmt::format("{}hc_{}_fn", prefix, site), {text_.hc_rows(), text_.hc_mult * text_.hidden_size},
          Storage::bf16, Component::mhc);
      add(fmt::format("{}hc_{}_base", prefix, site), {text_.hc_rows()}, Storage::f32, Component::mhc);
      add(fmt::format("{}hc_{}_scale", prefix, site), {3}, Storage::f32, Component::mhc);
    }
    block(prefix, layer);
  }

  void nextn_layer(int64_t index) {
    const std::string prefix = fmt::format("model.language_model.layers.{}.", index);
    const int64_t hidden = text_.hidden_size;
    add(prefix + "eh_proj.weight", {hidden, 2 * hidden}, Storage::bf16, Component::eh_proj);
    for (const char* norm : {"enorm", "hnorm", "shared_head.norm"}) {
      add(prefix + norm + ".weight", {hidden}, Storage::bf16, Component::norms);
    }
    block(prefix, {LayerAttention::dsa, LayerIndexer::full, LayerMlp::sparse});
  }

  void block(const std::string& prefix, const LayerConfig& layer) {
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) {
      add(prefix + norm + ".weight", {text_.hidden_size}, Storage::bf16, Component::norms);
    }
    if (layer.attention == LayerAttention::kda) {
      kda(prefix + "self_attn.");
    } else {
      mla(prefix + "self_attn.");
      if (layer.indexer == LayerIndexer::full) indexer(prefix + "self_attn.indexer.");
    }
    if (layer.mlp == LayerMlp::dense) {
      swiglu(prefix + "mlp.", text_.intermediate_size, Component::dense);
    } else {
      moe(prefix + "mlp.");
    }
  }

  void kda(const std::string& prefix) {
    const int64_t hidden = text_.hidden_size, width = text_.linear_width(), head = text_.linear_head_dim;
    auto kda_tensor = [&](const char* name, std::vector<int64_t> shape, Storage storage, Split split) {
      add(prefix + name, std::move(shape), storage, Component::kda, split);
    };
    for (const char* name : {"q_proj.weight", "k_proj.weight", "v_proj.weight"}) {
      kda_tensor(name, {width, hidden}, Storage::bf16, Split::rows);
    }
    for (const char* name : {"q_conv1d.weight", "k_conv1d.weight", "v_conv1d.weight"}) {
      kda_tensor(name, {width, 1, text_.linear_conv_kernel_dim}, Storage::bf16, Split::rows);
    }
    for (const char* gate : {"f", "g"}) {
      kda_tensor(fmt::format("{}_a_proj.weight", gate).c_str(), {head, hidden}, Storage::bf16,
                 Split::replicated);
      kda_tensor(fmt::format("{}_b_proj.weight", gate).c_str(), {width, head}, Storage::bf16, Split::rows);
    }
    kda_tensor("b_proj.weight", {text_.linear_num_heads, hidden}, Storage::bf16, Split::rows);
    kda_tensor("A_log", {text_.linear_num_heads}, Storage::f32, Split::rows);
    kda_tensor("dt_bias", {width}, Storage::f32, Split::rows);
    add(prefix + "o_norm.weight", {head}, Storage::bf16, Component::norms);
    kda_tensor("o_proj.weight", {hidden, width}, Storage::bf16, Split::columns);
  }

  void mla(const std::string& prefix) {
    const int64_t hidden = text_.hidden_size, heads = text_.num_attention_heads;
    add(prefix + "q_a_proj.weight", {text_.q_lora_rank, hidden}, Storage::quantised, Component::mla);
    add(prefix + "q_a_layernorm.weight", {text_.q_lora_rank}, Storage::bf16, Component::norms);
    add(prefix + "q_b_proj.weight", {heads * text_.qk_head_dim, text_.q_lora_rank}, Storage::quantised,
        Component::mla, Split::rows);
    add(prefix + "kv_a_proj_with_mqa.weight", {text_.kv_lora_rank, hidden}, Storage::quantised,
        Component::mla);
    add(prefix + "kv_a_layernorm.weight", {text_.kv_lora_rank}, Storage::bf16, Component::norms);
    add(prefix + "kv_b_proj.weight", {heads * (text_.qk_head_dim + text_.v_head_dim), text_.kv_lora_rank},
        Storage::bf16, Component::kv_b, Split::rows);
    add(prefix + "o_proj.weight", {hidden, heads * text_.v_head_dim}, Storage::quantised, Component::mla,
        Split::columns);
  }

  void indexer(const std::string& prefix) {
    const int64_t hidden = text_.hidden_size, width = text_.index_head_dim;
    auto indexer_tensor = [&](const char* name, std::vector<int64_t> shape) {
      add(prefix + name, std::move(shape), Storage::bf16, Component::indexer);
    };
    indexer_tensor("wq_b.weight", {text_.index_n_heads * width, text_.q_lora_rank});
    indexer_tensor("wk.weight", {width, hidden});
    indexer_tensor("weights_proj.weight", {text_.index_n_heads, hidden});
    add(prefix + "k_norm.weight", {width}, Storage::bf16, Component::norms);
    add(prefix + "k_norm.bias", {width}, Storage::bf16, Component::norms);
    indexer_tensor("index_kpool_compress_ape", {text_.index_kpool, width});
    indexer_tensor("index_kpool_compress_gate", {width, hidden});
  }

  void swiglu(const std::string& prefix, int64_t width, Component component, int expert = -1) {
    const int64_t hidden = text_.hidden_size;
    add(prefix + "gate_proj.weight", {width, hidden}, Storage::quantised, component, Split::rows, expert);
    add(prefix + "up_proj.weight", {width, hidden}, Storage::quantised, component, Split::rows, expert);
    add(prefix + "down_proj.weight", {hidden, width}, Storage::quantised, component, Split::columns, expert);
  }

  void moe(const std::string& prefix) {
    add(prefix + "gate.weight", {text_.n_routed_experts, text_.hidden_size}, Storage::bf16,
        Component::router);
    add(prefix + "gate.e_score_correction_bias", {text_.n_routed_experts}, Storage::f32, Component::router);
    swiglu(prefix + "shared_experts.", text_.shared_intermediate_size(), Component::shared_experts);
    for (int64_t e = 0; e < text_.n_routed_experts; ++e) {
      swiglu(fmt::format("{}experts.{}.", prefix, e), text_.moe_intermediate_size, Component::experts,
             static_cast<int>(e));
    }
  }

  void visual(std::string_view name, std::vector<int64_t> shape) {
    add(fmt::format("model.visual.{}", name), std::move(shape), Storage::bf16, Component::vision);
  }
  // name.weight [out, rest...] and name.bias [out]
  void visual_with_bias(const std::string& name, std::vector<int64_t> shape) {
    visual(name + ".bias", {shape[0]});
    visual(name + ".weight", std::move(shape));
  }

  void vision() {
    const int64_t width = vision_.hidden_size, inner = vision_.intermediate_size,
                  out = vision_.out_hidden_size;
    const int64_t patch = vision_.patch_size, merge = vision_.spatial_merge_size;
    visual_with_bias("patch_embed.proj",
                     {width, vision_.in_channels, vision_.temporal_patch_size, patch, patch});
    for (int64_t i = 0; i < vision_.depth; ++i) {
      const std::string prefix = fmt::format("blocks.{}.", i);
      visual(prefix + "norm1.weight", {width});
      visual(prefix + "norm2.weight", {width});
      visual_with_bias(prefix + "attn.qkv", {3 * width, width});
      visual_with_bias(prefix + "attn.proj", {width, width});
      visual(prefix + "attn.q_norm.weight", {vision_.head_dim()});
      visual(prefix + "attn.k_norm.weight", {vision_.head_dim()});
      visual_with_bias(prefix + "mlp.gate_proj", {inner, width});
      visual_with_bias(prefix + "mlp.up_proj", {inner, width});
      visual_with_bias(prefix + "mlp.down_proj", {width, inner});
    }
    visual("post_layernorm.weight", {width});
    visual_with_bias("downsample", {out, width, merge, merge});
    visual("merger.proj.weight", {out, out});
    visual_with_bias("merger.post_projection_norm", {out});
    visual("merger.gate_proj.weight", {vision_.projection_intermediate_size, out});
    visual("merger.up_proj.weight", {vision_.projection_intermediate_size, out});
    visual("merger.down_proj.weight", {out, vision_.projection_intermediate_size});
  }

  const TextConfig& text_;
  const VisionConfig& vision_;
  bool nextn_ = false;
  std::vector<TensorSpec> out_;
};

}  // namespace

int64_t TensorSpec::elements() const {
  int64_t product = 1;
  for (int64_t size : shape) product *= size;
  return product;
}

std::string scale_name(std::string_view weight_name) {
  return fmt::format("{}_scale_inv", weight_name);
}

std::vector<TensorSpec> make_inventory(const ModelConfig& config) {
  return Lister(config).list();
}

}  // namespace godwit
