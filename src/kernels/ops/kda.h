// Kimi Delta Attention: glm5_next spec §8. H heads of this rank, dk = dv = d, W = H d. State and arithmetic
// are f32.
#pragma once

#include "kernels/ops/dense.h"
#include "kernels/step.h"
#include "tensor/tensor.h"

namespace godwit::kernels {

// The state of one KDA layer in all slots. Slots are `slot_stride` bytes apart, so that all layers of a slot
// lie together and move as one piece (snapshots, host tier). Addresses are 64 bit everywhere (trap T17).
// At position 0 state and conv window are zero whatever the slot holds: a sequence with first == 0, and a
// replay whose rows began there (first == replay), start from zero, so a slot need not be cleared.
struct KdaState {
  std::byte* base = nullptr;  // slot 0 of this layer
  int64_t slot_stride = 0;    // bytes
  int64_t state_offset = 0;   // S: [H, d key, d value] f32
  int64_t window_offset =
      0;  // committed conv window: [taps - 1, 3 W], oldest row first, raw projections (f32 | bf16)
  // Step inputs of the rows a verify left pending (design §10); a replay folds the accepted ones in.
  int64_t pending_raw_offset = 0;    // [pending rows, 3 W] raw projections, type of the window
  int64_t pending_key_offset = 0;    // [pending rows, W] l2-normalised k, f32
  int64_t pending_delta_offset = 0;  // [pending rows, W] u of spec §8.4, f32
  int64_t pending_decay_offset = 0;  // [pending rows, W] log-decay g, f32
  DType window_dtype = DType::f32;
};

struct KdaGates {
  View forget;                     // [T, W] f = f_b(f_a x)
  View beta;                       // [T, H] b = b_proj x, before the sigmoid
  const float* a_exp = nullptr;    // [H] exp(A_log)
  const float* dt_bias = nullptr;  // [W]
  float lower_bound = 0;           // -5: a multiplier of the sigmoid, not a clamp (trap T6)
};

// Causal conv of `taps` over q|k|v channels, then SiLU; the last tap is the current token (spec §8.2). All
// rows. Raw values pass through the window's type before any tap, or a slice would change bits. The committed
// window of a sequence moves past its rows, except for verify rows, whose raw inputs become pending.
struct KdaConv {
  View raw;                       // [T, 3 W] projections, q then k then v
  const float* weight = nullptr;  // [3 W, taps]
  int32_t taps = 0;
  KdaState state;
  View out;  // [T, 3 W]
};

// The chunk form on a grid of 64 anchored at position 0, for the prefill sequences (rows from decode_rows
// on); a prefill sequence starts on the grid. Sub-blocks of 16 keep every factored exponential finite (spec
// §8.5, §8.6).
struct KdaChunk {
  View qkv;  // [T, 3 W] after conv
  KdaGates gates;
  KdaState state;
  View out;  // [T, W]
};

// The recurrence of spec §8.4 for the decode-family sequences. Verify rows run on a copy of the committed
// state and leave (k, u, g) pending; all other kinds commit.
struct KdaStep {
  View qkv;  // [T, 3 W] after conv
  KdaGates gates;
  KdaState state;
  View out;  // [T, W]
};

// For every sequence with replay > 0: folds its first `replay` pending rows into S and the conv window, in
// order, with the arithmetic of kda_step bit for bit. Runs before kda_conv of the step.
struct KdaReplay {
  int64_t heads = 0;     // H
  int64_t head_dim = 0;  // d
  int32_t taps = 0;
  KdaState state;
};

// out_h = rms(o_h; weight, eps) * sigmoid(z_h) per head (spec §8.7; sigmoid, not SiLU).
struct GatedNorm {
  View o;                         // [T, W]
  View gate;                      // [T, W] z = g_b(g_a x)
  const float* weight = nullptr;  // [d]
  int64_t head_dim = 0;           // d
  float eps = 0;
  View out;  // [T, W]
};

// What lies between the input projections of a layer and its output projection, for all rows: kda_replay when
// the step has replays, the low-rank halves of both gates, kda_conv, kda_step and kda_chunk, gated_norm. The
// result is norm.out; what lies in conv.out, gates.forget, norm.o and norm.gate afterwards is the backend's
// own. One launch for the decode family on a GPU, a composition by default.
struct KdaMix {
  KdaConv conv;
  Linear forget;   // f_b: [T, low] -> gates.forget
  Linear gate;     // g_b: [T, low] -> norm.gate
  KdaGates gates;  // forget and beta as in kda_step; beta is an input
  GatedNorm norm;
};

}  // namespace godwit::kernels
