// A rank's share of a checkpoint read into its places, and how fast (design §13, "load").
#pragma once

#include <filesystem>

#include "base/json.h"
#include "base/result.h"
#include "weights/read_workers.h"

namespace godwit::bench {

struct LoadCase {
  std::filesystem::path checkpoint;
  int64_t tp = 1, ep = 1, rank = 0;
  int threads = 8;
};

// Reads what the engine binds (no draft block, no vision tower) into memory of this process that nobody has
// touched before. data_refused when the checkpoint is, or when the share is larger than the memory available.
Result<ReadStatus> run_load_bench(const LoadCase& asked);
Json as_json(const LoadCase& asked, const ReadStatus& status);

}  // namespace godwit::bench
