// MLA in absorbed form over paged latents, and the k-pool indexer: glm5_next spec §9, §10.
// L = latent width, Hi index heads of di, P = index pool, page = 64 tokens = 64 / P pools.
#pragma once

#include "kernels/cache_format.h"
#include "kernels/step.h"
#include "tensor/tensor.h"

namespace godwit::kernels {

// The paged caches of one DSA layer. A page is `page_stride` bytes from the next, so that all layers of a
// page lie together.
struct DsaCache {
  std::byte* base = nullptr;  // page 0 of this layer
  int64_t page_stride = 0;    // bytes
  int64_t latent_offset = 0;  // [64, L] latents
  int64_t pooled_offset = 0;  // [64 / P, di] pooled index keys
  // Formats of kernels/cache_format.h.
  DType latent_dtype = DType::f32;
  DType pooled_dtype = DType::f32;
  // Raw key and gate of the newest tokens, a ring by position: it seeds the pool that straddles steps. Ring
  // length is a multiple of P and at least P + pending rows, or a rejected draft would corrupt a finished
  // pool (trap T26).
  std::byte* ring = nullptr;  // slot 0 of this layer
  int64_t ring_stride = 0;    // bytes between slots
  int32_t ring_length = 0;    // entries of [2, di] f32: key then gate

  // Latent i of a page and pooled key i of its `pools`; `n` = L, di.
  StoredRow latent(int64_t page, int64_t i, int64_t n) const {
    return latent_at(base + page * page_stride + latent_offset, latent_dtype, i, n);
  }
  StoredRow key(int64_t page, int64_t pools, int64_t i, int64_t n) const {
    return key_at(base + page * page_stride + pooled_offset, pooled_dtype, pools, i, n);
  }
};

// Stores the normed latents of all rows. Attention reads only what is stored, never the unrounded value
// (design §7).
struct LatentWrite {
  View latent;  // [T, L]
  DsaCache cache;
};

// Writes the ring for all rows and every pool whose last token is among them: pooled[d] = sum_s
// softmax_s(gate_s[d] + ape[s, d]) key_s[d], the softmax per channel over the P tokens (spec §10.2). Also
// when nothing is scored (trap T25). A pool reads only ring entries of its own tokens, so a slot's ring need
// not be cleared; a pool is rounded to its format once, from the f32 of the ring, when it is complete.
struct IndexWrite {
  View key;                    // [T, di] after k_norm
  View gate;                   // [T, di] from x, before any norm
  const float* ape = nullptr;  // [P, di]
  int32_t pool = 0;            // P
  DsaCache cache;
};

// For each row at position t: the min(topk / P, candidates) best pools, candidates = floor((t + 1) / P),
// ascending; ties go to the lower index, a NaN score ranks last. score = scale sum_h weight_h relu(q_h .
// pooled) in f32 (spec §10.3), q as it meets keys of their format. When candidates <= topk / P nothing is
// scored: the list is all of them. Scores never exist as rows x context: tiles with a running top-k in a
// fixed workspace (design §8).
struct IndexSelect {
  View query;       // [T, Hi * di]
  View weight;      // [T, Hi] f32, raw weights_proj x
  float scale = 0;  // Hi^-1/2 di^-1/2
  DsaCache cache;
  int32_t pool = 0;   // P
  int32_t topk = 0;   // tokens
  int64_t heads = 0;  // Hi
  View pools;         // [T, topk / P] i32, ascending, rest -1
  View count;         // [T, 1] i32
};

// Lists for rows that reuse what another row selected (spec §13.5): out row r is the list of row `rows[r]`,
// then every pool that was completed after it, so that with the tail all newer tokens are attended to. Row r
// of the step lies `ahead` positions behind the row whose list it takes; ahead = 0 copies lists, and the step
// does not matter.
struct IndexReuse {
  View pools;                     // [*, topk / P] i32
  View count;                     // [*, 1] i32
  const int32_t* rows = nullptr;  // [R]; null: row r takes list r
  int32_t ahead = 0;
  int32_t pool = 0;  // P
  View out_pools;    // [R, topk / P or more] i32, the rest -1; must have room for what is added
  View out_count;    // [R, 1] i32; neither may be its source
};

// l[t, h] = sum_j p_j c_j, p = softmax_j(scale q_h . c_j) over the tokens of the selected pools in ascending
// order, then the tail P floor((t + 1) / P) … t (spec §9.2, §10.4). Never scores a position > t.
struct MlaAttend {
  View query;  // [T, H * L] absorbed queries
  DsaCache cache;
  View pools;         // [T, topk / P] i32; wider after index_reuse
  View count;         // [T, 1] i32
  int32_t pool = 0;   // P
  int64_t heads = 0;  // H
  float scale = 0;    // qk_head_dim^-1/2, not L^-1/2 (trap T18)
  View out;           // [T, H * L]
};

// Everything a DSA layer computes from its normed input before attention: one entry, so that a backend can
// fuse the launches. The default body is the composition of the plain ops.
struct DsaProject {
  View x;  // [T, D]
  Weight q_a, kv_a, q_b;
  const float* q_a_norm = nullptr;   // [q_lora]
  const float* kv_a_norm = nullptr;  // [L]
  float eps = 0;
  View absorb_k;      // [H * L, nope]: W_K transposed per head
  int64_t heads = 0;  // H
  // Indexer; wq_b.empty() when this layer reuses the selection of the one before (spec §10.8).
  Weight wq_b, wk, gate, weights_proj;
  const float* k_norm_weight = nullptr;  // [di]
  const float* k_norm_bias = nullptr;    // [di]
  float k_norm_eps = 0;                  // 1e-6
  const float* ape = nullptr;            // [P, di]
  int32_t pool = 0;
  int64_t index_heads = 0;
  DsaCache cache;
  // Scratch and results.
  View q_latent;      // [T, q_lora] normed, also feeds the indexer
  View q;             // [T, H * nope]
  View latent;        // [T, L]
  View query;         // [T, H * L] result: absorbed queries
  View index_query;   // [T, Hi * di] result
  View index_weight;  // [T, Hi] f32 result, raw (trap T22: never rounded below f32)
  View index_key;     // [T, di]
  View index_gate;    // [T, di]
};

}  // namespace godwit::kernels
