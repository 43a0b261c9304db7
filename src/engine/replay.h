// Runs a dumped step again on the same model: the state before it is rebuilt from the ids, which gives the
// same bits (design §2: any slicing, any company), then the plan itself runs.
#pragma once

#include <vector>

#include "engine/step_dump.h"
#include "sample/sampling.h"

namespace godwit::engine {

struct Replayed {
  int64_t rebuilt_rows = 0;
  std::vector<sample::Sampled> drawn;  // one per entry of the plan's samples
};

// `threads` of the CPU backend, 0 = all cores. data_refused when the dump contradicts the model or itself;
// internal with the reason when the step fails again.
Result<Replayed> replay_step(const StepDump& dump, const std::filesystem::path& model_dir, int threads);

}  // namespace godwit::engine
