// Threads that work off the chunks of a ReadList, with progress, and an end when one fails or somebody asks.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/result.h"
#include "weights/read_list.h"

namespace godwit {

struct ReadStatus {
  uint64_t bytes = 0, bytes_done = 0;  // wanted ones: gaps are not counted
  size_t files = 0, files_done = 0;
  double seconds = 0;  // since the start

  double bytes_per_second() const { return seconds > 0 ? static_cast<double>(bytes_done) / seconds : 0; }
  double seconds_left() const;  // at that rate; 0 when there is none yet
};

// "12 of 62 shards, 15.1 of 83.0 GB, 11.83 GB/s, 6 s left"
std::string as_text(const ReadStatus& status);

struct ReadOptions {
  int threads = 8;
  std::stop_token stop;
  // About four times a second and at the end, from the calling thread.
  std::function<void(const ReadStatus&)> progress;
};

using ChunkWork = std::function<Result<void>(int thread, const ReadChunk& chunk)>;

// Calls work(thread, chunk) once for every chunk, from `threads` threads, in order of the chunks; a thread
// that finds no more calls finish(thread, its last chunk). The first error, or the first exception thrown,
// ends all threads and is handed on when they have ended; unavailable when `stop` was requested.
Result<ReadStatus> work_off(const std::vector<ReadChunk>& chunks, const ReadOptions& options,
                            const ChunkWork& work, const ChunkWork& finish = nullptr);

}  // namespace godwit
