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

// Drafts depend neither on company, nor on how a prompt was cut, nor on what a verify computed beside the
// tokens that were kept.
Result<Report> gate_drafted(const std::filesystem::path& model_dir, const RigOptions& options);

// The caches of `options.cache` are read and written: they change the logits of f32 caches, a little.
Result<void> check_cache_is_used(const std::filesystem::path& model_dir, const RigOptions& options,
                                 Report& report);

// Through the whole engine: a prefix hit gives the tokens and logprobs of a cold run, bit for bit, greedy and
// seeded.
Result<Report> gate_cached(const std::filesystem::path& model_dir, const RigOptions& options);

// A prefix that went through the host tier and came back gives the bits of one that stayed; so does a request
// that made room and continued, and one whose host copy was damaged and is computed again.
Result<Report> gate_restored(const std::filesystem::path& model_dir, const RigOptions& options);
// A request that had to make room and was recomputed gives the tokens of an unbroken run; likewise one
// resumed elsewhere.
Result<Report> gate_resumed(const std::filesystem::path& model_dir, const RigOptions& options);

}  // namespace godwit::selftest
