// The strict reader of a model directory's config.json and generation_config.json (glm5_next spec §2).
//
// What the engine computes is fixed by these values, so a key nobody here knows is refused by name instead of
// being skipped: skipping it would give wrong tokens without a word.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace godwit {

enum class LayerAttention : uint8_t {
  kda,
  dsa
};  // layer_types: linear_attention | deepseek_sparse_attention
enum class LayerIndexer : uint8_t {
  full,
  shared
};  // shared: the selection of the DSA layer just before (§10.8)
enum class LayerMlp : uint8_t { dense, sparse };

struct LayerConfig {
  LayerAttention attention = LayerAttention::kda;
  LayerIndexer indexer = LayerIndexer::full;  // no meaning on KDA layers
  LayerMlp mlp = LayerMlp::dense;
};

// text_config (§2.2). Widths and counts as in the file; `layers` holds the main layers only, the NextN layers
// after them are all {dsa, full, sparse} (§13.1).
struct TextConfig {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 0;
  double swiglu_limit = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_nextn_predict_layers = 0;  // 0 or 1
  std::vector<LayerConfig> layers;       // [num_hidden_layers]

  // MLA (§9): no rotary part, so a query or key head is qk_head_dim wide.
  int64_t num_attention_heads = 0;
  int64_t qk_head_dim = 0;
  int64_t v_head_dim = 0;
  int64_t q_lora_rank = 0;
  int64_t kv_lora_rank = 0;

  // DSA indexer with pools (§10)
  int64_t index_n_heads = 0;
  int64_t index_head_dim = 0;
  int64_t index_topk = 0;   // tokens
  int64_t index_kpool = 0;  // tokens in a pool; divides index_topk and the page of 64 tokens
  bool index_share_for_mtp_iteration = true;

  // KDA (§8)
  int64_t linear_num_heads = 0;
  int64_t linear_head_dim = 0;
  int64_t linear_conv_kernel_dim = 0;
  double linear_lower_bound = 0;  // of the gate g, negative

  // FFN (§11)
  int64_t intermediate_size = 0;
  int64_t moe_intermediate_size = 0;
  int64_t n_routed_experts = 0;
  int64_t n_shared_experts = 0;
  int64_t num_experts_per_tok = 0;
  double routed_scaling_factor = 0;

  // mHC (§6)
  int64_t hc_mult = 0;
  int64_t hc_sinkhorn_iters = 0;
  double hc_eps = 0;

  int64_t linear_width() const { return linear_num_heads * linear_head_dim; }  // KDA q, k, v
  int64_t hc_rows() const { return 2 * hc_mult + hc_mult * hc_mult; }          // rows of hc_*_fn
  int64_t shared_intermediate_size() const { return n_shared_experts * moe_intermediate_size; }
};

// vision_config (§2.4)
struct VisionConfig {
  int64_t depth = 0;
  int64_t hidden_size = 0;
  int64_t num_heads = 0;
  int64_t intermediate_size = 0;
  int64_t out_hidden_size = 0;  // equals the text hidden_size
  int64_t projection_intermediate_size = 0;
  int64_t patch_size = 0;
  int64_t temporal_patch_size = 0;
  int64_t spatial_merge_size = 0;
  int64_t in_channels = 0;
  double rms_norm_eps = 0;
  double swiglu_limit = 0;

  int64_t head_dim() const { return hidden_size / num_heads; }
};

// generation_config.json: what a request gets when it says nothing. Absent file or key: empty.
struct GenerationDefaults {
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<int64_t> top_k;
  std::optional<double> repetition_penalty;
};

struct ModelConfig {
  TextConfig text;
  VisionConfig vision;
  int64_t image_token_id = -1;
  int64_t video_token_id = -1;
  int64_t image_start_token_id = -1;
  int64_t image_end_token_id = -1;
  int64_t video_start_token_id = -1;
  int64_t video_end_token_id = -1;
  int64_t pad_token_id = -1;  // -1: the file names none
  std::vector<int64_t>
      eos_token_ids;        // every id that ends a generation, config.json's then generation_config.json's
  bool fp8_blocks = false;  // quantization_config present: e4m3 with 128x128 scales, dynamic activations
  GenerationDefaults generation;
};

// Reads DIR/config.json and, if it is there, DIR/generation_config.json. Errors are data_refused and name
// file, key, value and what is supported. Keys outside text_config and vision_config that are unknown are
// logged once.
Result<ModelConfig> read_model_config(const std::filesystem::path& dir);

// The same from texts; `generation_json` may be empty. `config_name` is what messages call the first file.
Result<ModelConfig> parse_model_config(std::string_view config_json, std::string_view generation_json,
                                       std::string_view config_name = "config.json");

}  // namespace godwit
