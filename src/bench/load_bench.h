// A rank's share of a checkpoint read into its places, and how fast (design §13, "load").
#pragma once

#include <filesystem>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "weights/read_workers.h"

namespace godwit::bench {

struct LoadCase {
  std::filesystem::path checkpoint;
  int64_t tp = 1, ep = 1, rank = 0;
  int threads = 8;
  std::string device = "cpu";  // cpu: into memory of this process; cuda: to the device, as the engine loads
  bool verify = false;         // afterwards every byte is compared with the file's, through the page cache
};

struct LoadResult {
  ReadStatus read;
  double buffers_s = 0;  // to make the threads' buffers, before the first read: locking memory takes time
};

// Reads what the engine binds (no draft block, no vision tower) into memory that nobody has touched before.
// data_refused when the checkpoint is, when the share is larger than the memory available, or when a byte
// differs.
Result<LoadResult> run_load_bench(const LoadCase& asked);
Json as_json(const LoadCase& asked, const LoadResult& result);

}  // namespace godwit::bench
