// What a step looks like to an op: flat arrays in the backend's memory, made once a step from the StepPlan
// (design §6). Row order is fixed: the decode family first, then prefill.
#pragma once

#include <cstdint>
#include <limits>

namespace godwit::kernels {

// The arithmetic family follows the kind, never the number of rows (design §7): prefill rows use the chunk
// form of KDA, all other kinds the recurrence.
enum class RowKind : int32_t { decode = 0, verify = 1, draft = 2, forced = 3, prefill = 4 };

constexpr bool is_decode_family(RowKind kind) {
  return kind != RowKind::prefill;
}

// Ops whose products differ between the families are told how many of their rows, the first, are of the
// decode family; the rest are prefill's. A backend with one form for both need not look.
constexpr int64_t kAllRows = std::numeric_limits<int64_t>::max();

// Tokens a page holds. Slice edges, snapshots and the KDA chunk grid are multiples of it (design §9).
constexpr int64_t kPageTokens = 64;

struct Sequence {
  int64_t first = 0;  // position of its first row in the request's token sequence
  int32_t row = 0;    // index of its first row in the step
  int32_t rows = 0;   // consecutive positions first, first + 1, …
  int32_t slot = 0;   // state slot: KDA state, conv window, index ring, token history
  int32_t page_offset =
      0;  // its page table starts here in StepView::pages; entry i holds positions [64 i, 64 i + 64)
  int32_t replay = 0;  // accepted pending rows of an earlier verify, folded into the state before row 0
  RowKind kind = RowKind::decode;
};

struct StepView {
  int32_t rows = 0;                       // all rows T
  int32_t decode_rows = 0;                // the first decode_rows rows belong to the decode family
  int32_t sequences = 0;                  // all sequences
  int32_t decode_sequences = 0;           // the first decode_sequences are of the decode family
  int32_t replays = 0;                    // sequences with accepted pending rows
  const Sequence* sequence = nullptr;     // [sequences]
  const int32_t* row_sequence = nullptr;  // [rows] index into `sequence`
  const int32_t* ids = nullptr;           // [rows] token id, or kFromSlot
  const int32_t* pages = nullptr;         // page tables of all sequences, one after the other
};

// In StepView::ids: "the token last sampled in this row's slot", which stays on the device.
constexpr int32_t kFromSlot = -1;

// Sizes of one rank's share of the model; fixed at load. Heads and widths are this rank's, not the model's.
struct Dims {
  int64_t hidden = 0;        // D
  int64_t streams = 0;       // n, mHC residual streams
  int64_t vocab = 0;         // V of the whole model
  int64_t kda_heads = 0;     // H of KDA
  int64_t kda_key = 0;       // dk = dv
  int64_t conv_taps = 0;     // 4
  int64_t mla_heads = 0;     // H of MLA
  int64_t latent = 0;        // L, kv_lora_rank
  int64_t nope = 0;          // query and key width of a head
  int64_t value = 0;         // value width of a head
  int64_t index_heads = 0;   // Hi
  int64_t index_dim = 0;     // di
  int64_t index_pool = 0;    // P, tokens a pool
  int64_t index_topk = 0;    // tokens chosen, a multiple of P; for prepare() and scratch(): tokens of a list
  int64_t experts = 0;       // E of the whole model
  int64_t experts_topk = 0;  // k
  int64_t expert_inner = 0;  // I of one routed expert on this rank
  int64_t shared_inner = 0;  // I of the shared expert on this rank
  int64_t widest_inner = 0;  // largest FFN inner width on this rank
};

// Upper bounds of a step; every buffer and scratch is sized from them before load, none grows after.
struct StepLimits {
  int64_t rows = 0;          // all rows of a step
  int64_t decode_rows = 0;   // rows of the decode family
  int64_t sequences = 0;     // sequences of a step = state slots in use
  int64_t context = 0;       // tokens a sequence may have
  int64_t sampled_rows = 0;  // rows that are drawn from, and rows that have logits at the same time
  int64_t pending_rows = 1;  // rows a verify may leave pending (1 + draft depth)

  // Rows that get logits, in turns: those drawn from, and prompt rows that are scored.
  int64_t logits_rows() const { return sampled_rows + rows - decode_rows; }
};

}  // namespace godwit::kernels
