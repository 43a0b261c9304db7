#include <fmt/format.h>

#include <algorithm>

#include "config/model_config_parts.h"

namespace godwit {
namespace {

// Far above the released model, low enough that no product of two of them leaves 64 bits.
constexpr int64_t kWidest = 1 << 20;
constexpr int64_t kMostLayers = 1024;
constexpr int64_t kPageTokens = 64;  // design §9: a pool never straddles a page

void read_mla(ConfigReader& in, TextConfig& text) {
  text.num_attention_heads = in.integer("num_attention_heads", 1, 4096);
  text.qk_head_dim = in.integer("qk_head_dim", 1, 4096);
  text.v_head_dim = in.integer("v_head_dim", 1, 4096);
  text.q_lora_rank = in.integer("q_lora_rank", 1, kWidest);
  text.kv_lora_rank = in.integer("kv_lora_rank", 1, kWidest);
  in.expect("num_key_value_heads", Json(text.num_attention_heads));
  // The text model has no positional encoding: a rotary part would be silently dropped (§1).
  in.expect_required("qk_rope_head_dim", Json(0));
  in.expect_required("qk_nope_head_dim", Json(text.qk_head_dim));
  in.expect("head_dim", Json(0));
  in.expect("mla_use_nope", Json(true));
  in.expect("attention_bias", Json(false));
}

void read_indexer(ConfigReader& in, TextConfig& text) {
  text.index_n_heads = in.integer("index_n_heads", 1, 4096);
  text.index_head_dim = in.integer("index_head_dim", 1, 4096);
  text.index_topk = in.integer("index_topk", 1, kWidest);
  text.index_kpool = in.integer("index_kpool", 1, kPageTokens);
  in.require(kPageTokens % text.index_kpool == 0, "index_kpool", fmt::format("a divisor of {}", kPageTokens));
  in.require(text.index_topk % text.index_kpool == 0, "index_kpool",
             fmt::format("a divisor of index_topk ({})", text.index_topk));
  in.expect("index_kpool_compress", Json(true));
  in.expect("index_kpool_always_select_tail", Json(true));
  in.ignore({"indexer_rope_interleave"});  // without effect: there is no rotary part
  const Json* share = in.raw("index_share_for_mtp_iteration");
  in.require(!share || share->is_bool(), "index_share_for_mtp_iteration", "true or false");
  if (share && share->is_bool()) text.index_share_for_mtp_iteration = share->as_bool();
}

// `lists` are kda_layers or full_attn_layers: other models of this family count them from 1, so both are
// accepted as long as they say what layer_types says (§2.3).
void check_layer_list(ConfigReader& in, std::string_view key, const TextConfig& text, LayerAttention kind) {
  if (!in.has(key)) return;
  std::vector<int64_t> given = in.integers(key, 0, kMostLayers);
  std::vector<int64_t> zero_based, one_based;
  for (size_t i = 0; i < text.layers.size(); ++i) {
    if (text.layers[i].attention != kind) continue;
    zero_based.push_back(static_cast<int64_t>(i));
    one_based.push_back(static_cast<int64_t>(i) + 1);
  }
  in.require(given == zero_based || given == one_based, key, "the layers of that kind in layer_types");
}

// The released file nests these values; the transformers class writes them flat as well. Either or both,
// equal.
void read_kda(ConfigReader& in, std::string_view file, TextConfig& text, Result<void>& nested_result) {
  const Json* nested = in.raw("linear_attn_config");
  in.require(!nested || nested->is_object(), "linear_attn_config", "an object");
  const bool is_nested = nested && nested->is_object();
  ConfigReader inner(is_nested ? &nested->as_object() : nullptr,
                     fmt::format("{}: text_config.linear_attn_config", file));

  auto integer = [&](std::string_view inner_key, std::string_view flat_key, int64_t highest) {
    if (!is_nested) return in.integer(flat_key, 1, highest);
    int64_t value = inner.integer(inner_key, 1, highest);
    if (inner.ok()) in.expect(flat_key, Json(value));
    return value;
  };
  text.linear_num_heads = integer("num_heads", "linear_num_heads", 4096);
  text.linear_head_dim = integer("head_dim", "linear_head_dim", 4096);
  text.linear_conv_kernel_dim = integer("short_conv_kernel_size", "linear_conv_kernel_dim", 16);

  // Below -5 the factored chunk form could overflow fp32 inside its 16-token sub-blocks (§8.6).
  constexpr double kLowestGate = -5.0;
  if (is_nested) {
    text.linear_lower_bound = inner.real("gate_lower_bound", kLowestGate, -1e-3);
    if (inner.ok()) in.expect("linear_lower_bound", Json(text.linear_lower_bound));
    inner.expect("safe_gate", Json(true));
    check_layer_list(inner, "kda_layers", text, LayerAttention::kda);
    check_layer_list(inner, "full_attn_layers", text, LayerAttention::dsa);
    nested_result = inner.finish_refusing_unknown();
  } else {
    text.linear_lower_bound = in.real("linear_lower_bound", kLowestGate, -1e-3);
  }
}

void read_layers(ConfigReader& in, TextConfig& text) {
  const size_t count = static_cast<size_t>(text.num_hidden_layers);
  std::vector<std::string> attention = in.strings("layer_types", count);
  std::vector<std::string> indexers(count, "full"), mlps;
  if (in.has("indexer_types")) indexers = in.strings("indexer_types", count);
  const int64_t dense_layers = in.integer("first_k_dense_replace", 0, text.num_hidden_layers);
  for (int64_t i = 0; i < text.num_hidden_layers; ++i) mlps.push_back(i < dense_layers ? "dense" : "sparse");
  if (in.has("mlp_layer_types")) {
    in.require(in.strings("mlp_layer_types", count) == mlps, "mlp_layer_types",
               fmt::format("\"dense\" for the first first_k_dense_replace ({}) layers, then \"sparse\"",
                           dense_layers));
  }
  if (!in.ok()) return;

  for (size_t i = 0; i < count; ++i) {
    LayerConfig layer;
    in.require(attention[i] == "linear_attention" || attention[i] == "deepseek_sparse_attention",
               "layer_types",
               fmt::format("\"linear_attention\" and \"deepseek_sparse_attention\" (entry {} is \"{}\")", i,
                           attention[i]));
    in.require(indexers[i] == "full" || indexers[i] == "shared", "indexer_types",
               fmt::format("\"full\" and \"shared\" (entry {} is \"{}\")", i, indexers[i]));
    if (attention[i] == "deepseek_sparse_attention") layer.attention = LayerAttention::dsa;
    if (mlps[i] == "sparse") layer.mlp = LayerMlp::sparse;
    if (indexers[i] == "shared" && layer.attention == LayerAttention::dsa) {
      layer.indexer = LayerIndexer::shared;
      in.require(
          i > 0 && text.layers.back().attention == LayerAttention::dsa, "indexer_types",
          fmt::format("\"shared\" only directly after a deepseek_sparse_attention layer whose selection it "
                      "reuses (layer {} follows none)",
                      i));
    }
    text.layers.push_back(layer);
  }
}

void read_moe(ConfigReader& in, TextConfig& text) {
  text.moe_intermediate_size = in.integer("moe_intermediate_size", 1, kWidest);
  text.n_routed_experts = in.integer("n_routed_experts", 1, 65536);
  text.n_shared_experts = in.integer("n_shared_experts", 1, 64);
  text.num_experts_per_tok = in.integer("num_experts_per_tok", 1, text.n_routed_experts);
  text.routed_scaling_factor = in.real("routed_scaling_factor", 1e-6, 1e6);
  in.expect("n_group", Json(1));
  in.expect("topk_group", Json(1));
  in.expect("scoring_func", Json("sigmoid"));
  in.expect("topk_method", Json("noaux_tc"));
  in.expect("norm_topk_prob", Json(true));
  in.expect("moe_router_dtype", Json("float32"));
}

}  // namespace

Result<TextConfig> read_text_config(const JsonObject& object, std::string_view file) {
  ConfigReader in(&object, fmt::format("{}: text_config", file));
  TextConfig text;
  in.expect("model_type", Json("glm5_next_text"));
  text.vocab_size = in.integer("vocab_size", 1, int64_t{1} << 24);
  text.hidden_size = in.integer("hidden_size", 1, kWidest);
  text.intermediate_size = in.integer("intermediate_size", 1, kWidest);
  text.max_position_embeddings = in.integer("max_position_embeddings", 1, int64_t{1} << 30);
  text.rms_norm_eps = in.real("rms_norm_eps", 1e-12, 1e-2);
  text.swiglu_limit = in.real("swiglu_limit", 1e-3, 1e6);
  text.num_hidden_layers = in.integer("num_hidden_layers", 1, kMostLayers);
  const auto nextn = in.optional_integer("num_nextn_predict_layers", 0, 1);
  text.num_nextn_predict_layers = nextn.value_or(0);
  in.expect("hidden_act", Json("silu"));
  in.expect("tie_word_embeddings", Json(false));
  in.ignore({"dtype", "torch_dtype", "attention_dropout", "initializer_range", "use_cache", "bos_token_id",
             "pad_token_id", "eos_token_id"});  // the token ids are read with the top level's

  text.hc_mult = in.integer("hc_mult", 1, 16);
  text.hc_sinkhorn_iters = in.integer("hc_sinkhorn_iters", 1, 1000);
  text.hc_eps = in.real("hc_eps", 0, 1e-2);
  // The class default of one public engine is false (§2.2): the file has to say it.
  in.expect_required("mhc", Json(true));

  if (in.ok()) read_layers(in, text);
  read_mla(in, text);
  read_indexer(in, text);
  read_moe(in, text);
  Result<void> nested;
  read_kda(in, file, text, nested);
  GODWIT_TRY(in.error());
  GODWIT_TRY(nested);
  GODWIT_TRY(in.finish_refusing_unknown());
  return text;
}

}  // namespace godwit
