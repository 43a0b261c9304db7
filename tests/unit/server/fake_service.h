// An engine that replays scripted ids: what the server does with ids, stops, disconnects and errors is tested
// without a model.
#pragma once

#include <time.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "engine/service.h"

namespace godwit::server::testing {

struct Script {
  std::vector<int32_t> ids;
  engine::FinishReason reason =
      engine::FinishReason::stop;  // after the ids; stop: the last id is the stop id
  int64_t cached_tokens = 0;
  engine::MissReason miss = engine::MissReason::none;
  int64_t first_difference_at = -1;
  int64_t fail_after = -1;  // ids before an error ends it; -1: none
  float logprob = -0.5f;    // of each id
  bool hang = false;        // after the ids nothing more happens until it is cancelled
};

class FakeService final : public engine::Service {
 public:
  explicit FakeService(std::function<Script(const engine::Request&)> script, int64_t context = 4096)
      : script_(std::move(script)) {
    info_.backend = "fake";
    info_.kv_dtype = "f32";
    info_.context = context;
    info_.max_sequences = 1024;
    thread_ = std::thread([this] { run(); });
  }
  ~FakeService() override {
    stopping_ = true;
    wake_.notify_all();
    thread_.join();
  }

  Result<void> submit(engine::Request request) override {
    if (health_ != engine::Health::ready) return make_error(ErrorCode::unavailable, "", "draining");
    if (refuse_) return make_error(ErrorCode::overloaded, "", "the queue is full");
    Running running{std::move(request), {}, 0, false};
    running.script = script_(running.request);
    ++submitted_;
    {
      std::lock_guard lock(mutex_);
      inbox_.push_back(std::move(running));
    }
    wake_.notify_all();
    return {};
  }
  const engine::Info& info() const override { return info_; }
  engine::Status status() const override {
    engine::Status s;
    s.health = health_;
    s.running = running_count_;
    s.last_progress_ns = progress_ns_ != 0 ? progress_ns_.load() : SteadyClock().now_ns();
    s.cancelled = cancelled_;
    s.generated_tokens = pushed_;
    return s;
  }
  void flush_cache(std::function<void(const Result<engine::Flushed>&)> done) override {
    if (keep_flush_) kept_flush_ = std::move(done);
    ++flushes_;
    if (kept_flush_) return;
    if (health_ == engine::Health::dead) return done(make_error(ErrorCode::unavailable, "", "dead"));
    done(
        engine::Flushed{.pages = 7, .snapshots = 2, .host_pages = 5, .host_snapshots = 1, .host_bytes = 640});
  }
  void drain(int64_t deadline_ns) override {
    health_ = engine::Health::draining;
    while (running_count_ > 0 && SteadyClock().now_ns() < deadline_ns) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    cut_ = true;
    while (running_count_ > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  engine::Info info_;
  std::atomic<engine::Health> health_{engine::Health::ready};
  std::atomic<bool> refuse_{false};
  std::atomic<bool> paused_{false};  // no ids while set
  std::atomic<int64_t> token_delay_us_{0};
  std::atomic<int64_t> progress_ns_{0};  // 0: now
  std::atomic<int64_t> cancelled_{0};
  std::atomic<int64_t> flushes_{0};
  std::atomic<bool> keep_flush_{false};  // the next flush is not done but kept
  std::function<void(const Result<engine::Flushed>&)> kept_flush_;
  std::atomic<int64_t> pushed_{0};
  std::atomic<int64_t> submitted_{0};
  std::atomic<int64_t> allowed_{std::numeric_limits<int64_t>::max()};  // ids of all requests together
  std::atomic<int64_t> cpu_ns_{0};                                     // of the fake's own thread

 private:
  struct Running {
    engine::Request request;
    Script script;
    size_t next = 0;
    bool started = false;
    int64_t scored = 0;
  };

  void run() {
    std::vector<Running> active;
    while (!stopping_) {
      {
        std::unique_lock lock(mutex_);
        if (active.empty() && inbox_.empty()) wake_.wait_for(lock, std::chrono::milliseconds(1));
        for (auto& r : inbox_) active.push_back(std::move(r));
        inbox_.clear();
        running_count_ = static_cast<int64_t>(active.size());
      }
      bool progress = false;
      for (size_t i = 0; i < active.size();) {
        engine::TokenSink& sink = *active[i].request.sink;
        const bool ended = step(active[i], progress);
        if (sink.claim_wake()) sink.wake();
        if (ended) {
          active.erase(active.begin() + static_cast<int64_t>(i));
          running_count_ = static_cast<int64_t>(active.size());
        } else {
          ++i;
        }
      }
      timespec t{};
      clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
      cpu_ns_ = t.tv_sec * 1'000'000'000 + t.tv_nsec;
      const int64_t delay = token_delay_us_;
      if (delay > 0 || !progress)
        std::this_thread::sleep_for(std::chrono::microseconds(delay > 0 ? delay : 50));
    }
  }

  bool step(Running& r, bool& progress) {
    engine::TokenSink& sink = *r.request.sink;
    if (sink.cancelled()) {
      ++cancelled_;
      sink.push_end({.reason = engine::FinishReason::cancelled});
      return true;
    }
    if (cut_) {
      sink.push_end({.reason = engine::FinishReason::error, .failure = engine::Failure::shut_down});
      return true;
    }
    if (paused_) return false;
    if (!r.started) {
      r.started = true;
      sink.push_start({.prompt_tokens = static_cast<int64_t>(r.request.prompt.size()),
                       .cached_tokens = r.script.cached_tokens,
                       .miss = r.script.miss,
                       .first_difference_at = r.script.first_difference_at,
                       .queued_ns = 1000});
    }
    const auto scores = static_cast<int64_t>(r.request.prompt.size()) - 1;
    while (r.request.prompt_logprobs && r.scored < scores) {
      if (sink.room() == 0) return false;
      engine::TopLogprobs top;
      top.count = 1;
      top.ids[0] = r.request.prompt[static_cast<size_t>(++r.scored)];
      top.logprobs[0] = -0.25f;
      sink.push_score({top.ids[0], -0.25f}, top);
      progress = true;
    }
    if (r.script.fail_after >= 0 && static_cast<int64_t>(r.next) >= r.script.fail_after) {
      sink.push_end({.reason = engine::FinishReason::error, .failure = engine::Failure::engine_died});
      return true;
    }
    const size_t limit = std::min(r.script.ids.size(), static_cast<size_t>(r.request.stop.max_tokens));
    if (r.next < limit) {
      if (sink.room() == 0 || pushed_ >= allowed_) return false;
      sink.push({r.script.ids[r.next++], r.script.logprob}, nullptr);
      ++pushed_;
      progress = true;
      if (r.next < limit) return false;
    }
    if (r.script.hang) return false;
    const bool cut_short = limit < r.script.ids.size();
    const engine::FinishReason reason = cut_short ? engine::FinishReason::length : r.script.reason;
    sink.push_end(
        {.reason = reason,
         .stop_id = reason == engine::FinishReason::stop && limit > 0 ? r.script.ids[limit - 1] : -1});
    return true;
  }

  std::function<Script(const engine::Request&)> script_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Running> inbox_;
  std::atomic<int64_t> running_count_{0};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> cut_{false};
  std::thread thread_;
};

}  // namespace godwit::server::testing
