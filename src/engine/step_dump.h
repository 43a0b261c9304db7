// A step that died, written down so that it can be run again: the plan, the masks of its draws, the steps
// before it, the sizes of the engine and the ids of the sequences in it. It holds prompts as ids, so the file
// is readable by its owner only (0600).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/ledger.h"
#include "engine/mask_runs.h"
#include "engine/step_log.h"
#include "schedule/step_plan.h"

namespace godwit::engine {

struct StepDump {
  struct Sequence {
    uint64_t number = 0;     // PlanSequence::request
    std::string request_id;  // x-request-id
    int64_t prompt_tokens = 0;
    std::vector<int32_t> tokens;  // prompt, forced and drawn ids
  };
  std::string build;
  std::string model;  // directory
  std::string reason;
  LedgerSizes sizes;
  DType kv = DType::f32;  // format of the caches
  MaskRuns vocabulary;    // ids that may be drawn at all
  schedule::StepPlan plan;
  std::vector<MaskRuns> masks;    // of constrained rows, by sample::SamplingRow::mask
  std::vector<StepRecord> steps;  // the last ones, oldest first; the last of them is `plan`
  std::vector<Sequence> sequences;
};

// A new file godwit-step-<process>-<step>.json in `directory`. internal, naming the path, when it cannot be
// written.
Result<std::filesystem::path> write_step_dump(const std::filesystem::path& directory, const StepDump& dump);
// data_refused, naming the file and the field, when it is no dump of this version or contradicts itself.
Result<StepDump> read_step_dump(const std::filesystem::path& path);

}  // namespace godwit::engine
