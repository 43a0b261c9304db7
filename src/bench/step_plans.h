// The plans of a bench's steps: sequences of equal length whose pages lie anywhere in the pool, as an
// engine's do.
#pragma once

#include "schedule/step_plan.h"
#include "weights/shard_plan.h"

namespace godwit::bench {

struct StepShape {
  int64_t batch = 1;     // sequences
  int64_t context = 0;   // tokens of each before the step
  int64_t rows = 1;      // of each
  bool prefill = false;  // slices of prompts; begin on a page
  bool shared = false;   // the whole pages of the context are the same for all
  int64_t drafts = 0;    // positions behind the rows

  int64_t first() const;   // position of a sequence's first row
  int64_t tokens() const;  // of a sequence, those included that decode behind a slice
  int64_t table_pages() const;
  int64_t shared_pages() const;  // the first of each table
  int64_t pages() const;         // of all tables, each counted once
};

// Tokens are drawn from `ids`; sequence i has slot i + 1 and restores snapshot i. Page 0 stays free.
schedule::StepPlan make_plan(const StepShape& shape, Range ids);
// The same tokens one position on, as drafts.
schedule::StepPlan plan_draft(const schedule::StepPlan& step);
// Rows `at` up to `at + rows` of the same prompts, which are not more than the slice has; only the slice
// itself ends in a draw, and the first restores.
schedule::StepPlan plan_slice(const schedule::StepPlan& slice, int64_t at, int64_t rows);
// The nth decode step behind a slice, of each of its prompts; n < kPageTokens.
schedule::StepPlan plan_behind(const schedule::StepPlan& slice, int64_t nth);

}  // namespace godwit::bench
