// Activation buffers of a rank, sized once for the largest step. The attention and FFN parts of a layer never
// live at the same time, so they overlap.
#pragma once

#include "kernels/ops.h"

namespace godwit::model {

// T = limits.rows, R = limits.sampled_rows; the widths are this rank's.
struct Workspace {
  // Live across a layer.
  View streams;  // [T, n D]
  View mix;      // [T, n + n^2] f32
  View x;        // [T, D] collapsed row
  View normed;   // [T, D] input of a sublayer, Ops::activations()
  View y;        // [T, D] its output

  struct Kda {
    View raw, conv;     // [T, 3 W]
    View low_forget;    // [T, d] output of f_a
    View low_gate;      // [T, d] output of g_a
    View forget, gate;  // [T, W]
    View beta;          // [T, H]
    View o;             // [T, W]
    View out;           // [T, W] after its norm, Ops::activations(); o itself when that is f32
  } kda;
  struct Dsa {
    View q_latent;               // [T, q_lora]
    View q;                      // [T, H nope]
    View latent;                 // [T, L]
    View query;                  // [T, H L] absorbed
    View index_query;            // [T, Hi di]
    View index_weight;           // [T, Hi] f32
    View index_key, index_gate;  // [T, di]
    View attended;               // [T, H L]
    View value;                  // [T, H v]
  } dsa;
  // A selection outlives its layer: the next one may share it (spec §10.8).
  View pools;  // [T, topk / P] i32
  View count;  // [T, 1] i32
  struct Ffn {
    View gate_up;  // [T, 2 I]
    View inner;    // [T, I]
    View logits;   // [T, E] f32
    View ids;      // [T, k] i32
    View weights;  // [T, k] f32
    View routed;   // [T, D]
    View shared;   // [T, D]
  } ffn;
  struct Draft {  // empty when nothing is drafted; S = limits.sequences
    View pair;    // [T, 2 D] token then hidden state, Ops::activations()
    View hidden;  // [S, D] output of the newest draft of each sequence: input of the next
    View pools;   // [S, topk / P] i32 what the first draft selected, for those behind it
    View count;   // [S, 1] i32
    View list;    // [S, list_pools()] i32 the same with what was added since
    View listed;  // [S, 1] i32
  } draft;
  struct Head {
    View streams;  // [R, n D] of the sampled rows
    View hidden;   // [R, D]
    View normed;   // [R, D] Ops::activations(); hidden itself when that is f32
    View logits;   // [R, V] f32
  } head;

  int64_t bytes = 0;
};

// Lays the buffers out; with base == nullptr only `bytes` is meaningful (what the ledger asks for).
Workspace plan_workspace(const kernels::Dims& dims, int64_t q_lora, const kernels::StepLimits& limits,
                         DType activations, std::byte* base);

// The first `rows` rows of a buffer.
inline View head_rows(const View& v, int64_t rows) {
  return v.row_range(0, rows);
}

}  // namespace godwit::model
