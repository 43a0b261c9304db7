// Runs a dumped step again on the same model: the state before it is rebuilt from the ids, which gives the
// same bits (design §2: any slicing, any company), then the plan itself runs. What came from a snapshot or
// from the host tier is rebuilt likewise, so its commands need not run.
#pragma once

#include <vector>

#include "engine/step_dump.h"
#include "sample/sampling.h"

namespace godwit::engine {

struct Replayed {
  int64_t rebuilt_rows = 0;
  int64_t replayed_steps = 0;          // the dumped one included
  std::vector<sample::Sampled> drawn;  // one per entry of the plan's samples
};

// `threads` of the CPU backend, 0 = all cores. `steps` > 1: the steps before it run as they were sliced, too,
// as far as the dump has them: the rows of sequences that were still there at the end. data_refused when the
// dump contradicts the model or itself; internal with the reason when a step fails again.
Result<Replayed> replay_step(const StepDump& dump, const std::filesystem::path& model_dir, int threads,
                             int64_t steps = 1);

}  // namespace godwit::engine
