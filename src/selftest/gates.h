// Gates of design §2 that need no engine around the model: they compare logits bit for bit.
#pragma once

#include <filesystem>

#include "selftest/report.h"
#include "selftest/rig.h"

namespace godwit::selftest {

// Any slicing of a prompt at multiples of 64 gives the logits of the whole.
Result<Report> gate_chunked(const std::filesystem::path& model_dir, const RigOptions& options);
// A row's logits do not depend on what else is in the step: neighbours of every kind, other slots, other
// pages.
Result<Report> gate_batched(const std::filesystem::path& model_dir, const RigOptions& options);
// Ids replayed as forced rows, several a step, give the logits of decoding them one by one.
Result<Report> gate_forced(const std::filesystem::path& model_dir, const RigOptions& options);

// Through the whole engine: a prefix hit gives the tokens and logprobs of a cold run, bit for bit, greedy and
// seeded.
Result<Report> gate_cached(const std::filesystem::path& model_dir, const RigOptions& options);

}  // namespace godwit::selftest
