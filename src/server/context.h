// What all routes share.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "metrics/metrics.h"
#include "server/api_keys.h"
#include "server/http.h"
#include "server/response_store.h"
#include "server/serving_model.h"
#include "server/text_workers.h"

namespace godwit::server {

struct LoadProgress {
  std::string phase = "starting";
  double fraction = 0;  // 0…1
  std::string failed;   // why loading ended without a model
};

struct ServerContext {
  struct Sizes {
    int text_threads = 2;
    size_t text_waiting = 1024;       // jobs each lane of the text workers may hold
    size_t stored_responses = 1024;   // answers of /v1/responses that are kept
    size_t stored_bytes = 64u << 20;  // and their bytes in all
  };
  explicit ServerContext(const Sizes& sizes)
      : responses(sizes.stored_responses, sizes.stored_bytes),
        workers(sizes.text_threads, sizes.text_waiting) {}

  std::string build;
  std::string settings = "{}";        // JSON object for /server_info: effective values (pains O2)
  int64_t stall_ns = 60'000'000'000;  // /health fails when work is pending and no step finished for so long
  metrics::Metrics metrics;
  std::function<int64_t()> connections = [] { return int64_t{0}; };
  std::function<int64_t()> body_bytes = [] { return int64_t{0}; };  // of large bodies that arrive or wait

  ResponseStore responses;
  std::shared_ptr<const ApiKeys> keys;    // null: everybody is let in
  std::vector<std::string> cors_origins;  // pages of other origins that may use the server; "*": all

  std::atomic<bool> draining{false};
  bool has_admin_port = false;  // admin routes are there and nowhere else

  std::shared_ptr<const ServingModel> model() const {
    std::lock_guard lock(mutex_);
    return model_;
  }
  void set_model(std::shared_ptr<const ServingModel> model) {
    std::lock_guard lock(mutex_);
    model_ = std::move(model);
  }
  LoadProgress progress() const {
    std::lock_guard lock(mutex_);
    return progress_;
  }
  void set_progress(LoadProgress progress) {
    std::lock_guard lock(mutex_);
    progress_ = std::move(progress);
  }

  // The model, or why there is none (yet): one look, so that the answer cannot fall between two.
  Result<std::shared_ptr<const ServingModel>> loaded() const;
  // Why a generating request would not be accepted now; nothing when it would.
  Result<void> accepting() const;

 private:
  // Not an atomic shared_ptr: GCC 12's load() ends with a relaxed unlock, a race with the next store().
  mutable std::mutex mutex_;
  std::shared_ptr<const ServingModel> model_;
  LoadProgress progress_;

 public:
  TextWorkers workers;  // last: its threads use what is above
};

}  // namespace godwit::server
