// StepPlan: what the schedule tells the ranks to do in one step. Plain data, immutable for the step (design
// §6).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cache/move.h"
#include "kernels/step.h"
#include "sample/sampling.h"

namespace godwit::schedule {

struct PlanSequence {
  uint64_t request = 0;  // engine's number of the request
  kernels::Sequence rows;
  int32_t pages = 0;         // entries of its page table it uses, from rows.page_offset on
  int32_t sampled_rows = 0;  // its last so many rows get logits: decode 1, verify all, prefill up to all
};

// State that moves as one unit (design §9): restores run before the rows, saves after them.
struct SnapshotCommand {
  int32_t slot = 0;
  int32_t snapshot = 0;  // index in the snapshot pool
  int64_t position = 0;  // tokens the state covers, a multiple of 64
};

struct StepPlan {
  uint64_t step = 0;
  int32_t decode_sequences = 0;  // the first so many are of the decode family
  std::vector<PlanSequence> sequences;
  std::vector<int32_t> ids;  // [rows] or kernels::kFromSlot
  // Page tables. Those of the scheduler have a fixed place for each slot and stay from step to step: only
  // what changed is written, or a million-token context would cost 64 KB of copying for every token.
  std::vector<int32_t> pages;
  int32_t table_stride = 0;                  // entries kept for a slot: [slots, stride]
  std::vector<sample::SamplingRow> samples;  // one per logits row, in row order
  std::vector<int32_t> bias_ids;             // logit_bias pairs of all samples
  std::vector<float> bias_values;
  std::vector<cache::Move> moves;  // between the tiers: all out, then all in, before restores
  std::vector<SnapshotCommand> restores;
  std::vector<SnapshotCommand> saves;

  int32_t rows() const { return static_cast<int32_t>(ids.size()); }
  int32_t decode_rows() const {
    return static_cast<size_t>(decode_sequences) < sequences.size()
               ? sequences[static_cast<size_t>(decode_sequences)].rows.row
               : rows();
  }
  bool empty() const { return sequences.empty() && restores.empty() && saves.empty() && moves.empty(); }
  void clear();
  // A copy whose page tables hold what the step uses and lie one after the other: for dumps.
  StepPlan packed() const;
};

inline void StepPlan::clear() {
  decode_sequences = 0;
  sequences.clear();
  ids.clear();
  samples.clear();
  bias_ids.clear();
  bias_values.clear();
  moves.clear();
  restores.clear();
  saves.clear();
}

inline StepPlan StepPlan::packed() const {
  StepPlan out = *this;
  out.table_stride = 0;
  out.pages.clear();
  for (PlanSequence& p : out.sequences) {
    const auto table = pages.begin() + p.rows.page_offset;
    p.rows.page_offset = static_cast<int32_t>(out.pages.size());
    out.pages.insert(out.pages.end(), table, table + p.pages);
  }
  return out;
}

}  // namespace godwit::schedule
