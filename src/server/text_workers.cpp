#include "server/text_workers.h"

#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>

#include "base/log.h"

namespace godwit::server {

TextWorkers::TextWorkers(int threads, size_t waiting)
    : short_(waiting), long_(std::max<size_t>(1, waiting / 4)) {
  for (int i = 0; i < std::max(1, threads); ++i) threads_.emplace_back([this] { work(short_); });
  threads_.emplace_back([this] { work_in_the_background(); });
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

void TextWorkers::work_in_the_background() {
  // Of this thread alone: Linux keeps a nice value for each.
  constexpr int kNice = 10;
  if (setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), kNice) != 0)
    log_warn("the priority of long text work stays normal: {}", std::strerror(errno));
  work(long_);
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
    job.reset();  // with the body it holds
    // A body of 60 MB leaves ten times that in pieces, which the allocator would keep.
    if (&lane == &long_) malloc_trim(0);
  }
}

}  // namespace godwit::server
