#include "server/text_workers.h"

#include <algorithm>
#include <exception>

#include "base/log.h"

namespace godwit::server {

TextWorkers::TextWorkers(int threads, size_t waiting)
    : short_(waiting), long_(std::max<size_t>(1, waiting / 4)) {
  for (int i = 0; i < std::max(1, threads); ++i) threads_.emplace_back([this] { work(short_); });
  threads_.emplace_back([this] { work(long_); });
}

TextWorkers::~TextWorkers() {
  stop();
}

void TextWorkers::stop() {
  stopping_ = true;
  short_.close();
  long_.close();
  for (auto& thread : threads_) thread.join();
  threads_.clear();
}

bool TextWorkers::submit(size_t body_bytes, std::function<void()> job) {
  return (body_bytes >= kLongBytes ? long_ : short_).try_push(std::move(job));
}

void TextWorkers::work(Lane& lane) {
  for (;;) {
    auto job = lane.pop_for(std::chrono::hours(1));
    if (!job) {
      if (stopping_) return;
      continue;
    }
    try {
      (*job)();
    } catch (const std::exception& e) {  // out of memory on one request must not end the thread
      log_error("exception on a text worker: {}", e.what());
    }
  }
}

}  // namespace godwit::server
