// One rank's weights of glm5_next, bound by name to the checkpoint (spec §3.3) and placed in the backend's
// memory.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "config/model_config.h"
#include "model/glm5_next/arena.h"
#include "weights/checkpoint.h"
#include "weights/read_workers.h"
#include "weights/shard_plan.h"

namespace godwit::model {

struct KdaWeights {                // spec §8; W = heads of this rank x d
  Weight q, k, v;                  // [W, D]
  Weight f_a, g_a;                 // [d, D]
  Weight f_b, g_b;                 // [W, d]
  Weight b;                        // [H, D]
  Weight o;                        // [D, W], summed over ranks
  const float* conv = nullptr;     // [3 W, taps], q then k then v
  const float* a_exp = nullptr;    // [H] exp(A_log)
  const float* dt_bias = nullptr;  // [W]
  const float* o_norm = nullptr;   // [d]
};

struct DsaWeights {                      // spec §9, §10; H heads of this rank
  Weight q_a, kv_a;                      // [q_lora, D], [L, D]
  Weight q_b;                            // [H nope, q_lora]
  Weight o;                              // [D, H v], summed over ranks
  const float* q_a_norm = nullptr;       // [q_lora]
  const float* kv_a_norm = nullptr;      // [L]
  View absorb_k;                         // [H L, nope] W_K transposed per head
  View absorb_v;                         // [H v, L] W_V per head
  bool shared_indexer = false;           // no indexer of its own (spec §10.8)
  Weight wq_b, wk, gate, weights_proj;   // [Hi di, q_lora], [di, D], [di, D], [Hi, D]
  const float* k_norm_weight = nullptr;  // [di]
  const float* k_norm_bias = nullptr;    // [di]
  const float* ape = nullptr;            // [P, di]
};

struct FfnWeights {  // spec §11.1; I inner columns of this rank
  Weight gate, up;   // [I, D]
  Weight down;       // [D, I], summed over ranks
};

struct MoeWeights {                                 // spec §11.2, §11.3
  Weight router;                                    // [E, D]
  const float* bias = nullptr;                      // [E]
  const kernels::ExpertWeights* experts = nullptr;  // [experts of this rank]
  int32_t first_expert = 0;
  int32_t expert_count = 0;
  DType dtype = DType::f32;  // of the experts' weights
  int64_t inner = 0;         // I of a routed expert on this rank
  FfnWeights shared;
};

struct LayerWeights {
  LayerConfig kind;
  kernels::MhcWeights attention_hc, ffn_hc;
  const float* input_norm = nullptr;           // [D]
  const float* post_attention_norm = nullptr;  // [D]
  KdaWeights kda;                              // kind.attention == kda
  DsaWeights dsa;                              // kind.attention == dsa
  FfnWeights dense;                            // kind.mlp == dense
  MoeWeights moe;                              // kind.mlp == sparse
};

struct DraftWeights {                  // the NextN block, spec §13.1
  Weight eh_proj;                      // [D, 2 D], the columns of the embedding first (trap T34)
  const float* token_norm = nullptr;   // [D] enorm
  const float* hidden_norm = nullptr;  // [D] hnorm
  LayerWeights layer;                  // without mHC
  const float* head_norm = nullptr;    // [D] shared_head.norm
};

struct ModelWeights {
  Weight embed;                       // [V share, D]
  Weight lm_head;                     // [V share, D]
  int64_t first_id = 0;               // id of row 0 of both
  const float* final_norm = nullptr;  // [D]
  std::vector<LayerWeights> layers;
  std::optional<DraftWeights> draft;

  explicit ModelWeights(kernels::Memory& memory) : arena(memory) {}
  // What the pointers above point into, besides the mapped checkpoint.
  Arena arena;
  std::vector<Buffer> copies;
  std::vector<std::vector<kernels::ExpertWeights>> expert_tables;
  int64_t bytes = 0;  // of the checkpoint, this rank's share
};

// Binds every tensor of the main model, and with `draft` of its NextN block, and places it in `memory`;
// memory that is not the host's is filled by direct reads as `reads` says. The checkpoint must have passed
// check_checkpoint, and must outlive the weights.
Result<std::unique_ptr<ModelWeights>> bind_weights(const Checkpoint& checkpoint, const ModelConfig& config,
                                                   const ShardPlan& plan, int64_t rank,
                                                   kernels::Memory& memory, bool draft = false,
                                                   const ReadOptions& reads = {});

}  // namespace godwit::model
