#include "weights/read_workers.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

namespace godwit {
namespace {

using Clock = std::chrono::steady_clock;

// What the threads share.
class Shared {
 public:
  Shared(const std::vector<ReadChunk>& chunks, std::stop_token stop)
      : chunks_(chunks), stop_(std::move(stop)) {
    for (const ReadChunk& chunk : chunks) {
      ++left_[chunk.file];
      status_.bytes += chunk.wanted;
    }
    status_.files = left_.size();
  }

  // The next chunk; nullptr when there is none or all must end.
  const ReadChunk* take() {
    if (ended_ || stop_.stop_requested()) return nullptr;
    const size_t next = next_++;
    return next < chunks_.size() ? &chunks_[next] : nullptr;
  }

  void done(const ReadChunk& chunk) {
    std::lock_guard lock(mutex_);
    status_.bytes_done += chunk.wanted;
    if (--left_[chunk.file] == 0) ++status_.files_done;
  }

  void fail(Error error) {
    std::lock_guard lock(mutex_);
    if (!error_ && !exception_) error_ = std::move(error);
    ended_ = true;
  }
  void fail(std::exception_ptr exception) {
    std::lock_guard lock(mutex_);
    if (!error_ && !exception_) exception_ = std::move(exception);
    ended_ = true;
  }

  void leave() {
    std::lock_guard lock(mutex_);
    ++gone_;
    all_gone_.notify_one();
  }
  // Whether all `threads` have left before `time` has passed.
  bool wait_for_all(int threads, Clock::duration time) {
    std::unique_lock lock(mutex_);
    return all_gone_.wait_for(lock, time, [&] { return gone_ == threads; });
  }

  ReadStatus status() {
    std::lock_guard lock(mutex_);
    status_.seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    return status_;
  }

  // Once the threads have ended.
  Result<ReadStatus> result() {
    if (exception_) std::rethrow_exception(exception_);
    if (error_) return *error_;
    ReadStatus end = status();
    if (end.files_done == end.files) return end;
    return make_error(ErrorCode::unavailable, "", "reading was stopped after {}", as_text(end));
  }

 private:
  const std::vector<ReadChunk>& chunks_;
  std::stop_token stop_;
  const Clock::time_point start_ = Clock::now();
  std::atomic<size_t> next_{0};
  std::atomic<bool> ended_{false};
  std::mutex mutex_;
  std::condition_variable all_gone_;
  ReadStatus status_;                // what follows: under mutex_
  std::map<uint32_t, size_t> left_;  // chunks by file
  int gone_ = 0;
  std::optional<Error> error_;
  std::exception_ptr exception_;
};

}  // namespace

double ReadStatus::seconds_left() const {
  const double rate = bytes_per_second();
  return rate > 0 ? static_cast<double>(bytes - bytes_done) / rate : 0;
}

std::string as_text(const ReadStatus& s) {
  const auto gigabytes = [](double bytes) { return bytes * 1e-9; };
  return fmt::format("{} of {} shards, {:.2f} of {:.2f} GB, {:.2f} GB/s, {:.0f} s left", s.files_done,
                     s.files, gigabytes(static_cast<double>(s.bytes_done)),
                     gigabytes(static_cast<double>(s.bytes)), gigabytes(s.bytes_per_second()),
                     s.seconds_left());
}

Result<ReadStatus> work_off(const std::vector<ReadChunk>& chunks, const ReadOptions& options,
                            const ChunkWork& work, const ChunkWork& finish) {
  Shared shared(chunks, options.stop);
  std::vector<std::jthread> threads;  // joined before `shared` goes, also when starting one fails
  const int wanted = static_cast<int>(std::min<size_t>(static_cast<size_t>(options.threads), chunks.size()));
  for (int t = 0; t < wanted; ++t) {
    threads.emplace_back([&shared, &work, &finish, t] {
      try {
        const ReadChunk* last = nullptr;
        while (const ReadChunk* chunk = shared.take()) {
          last = chunk;
          if (Result<void> worked = work(t, *chunk); !worked.ok()) {
            shared.fail(std::move(worked.error()));
          } else {
            shared.done(*chunk);
          }
        }
        if (!finish || !last) return shared.leave();
        if (Result<void> finished = finish(t, *last); !finished.ok())
          shared.fail(std::move(finished.error()));
      } catch (...) {
        shared.fail(std::current_exception());
      }
      shared.leave();
    });
  }
  while (!shared.wait_for_all(wanted, std::chrono::milliseconds(250)))
    if (options.progress) options.progress(shared.status());
  threads.clear();
  if (options.progress) options.progress(shared.status());
  return shared.result();
}

}  // namespace godwit
