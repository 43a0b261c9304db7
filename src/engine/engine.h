// Engine: one thread that alone mutates schedule and cache, runs the steps and hands out what they gave
// (design §3).
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/queue.h"
#include "engine/ledger.h"
#include "engine/service.h"
#include "engine/step_log.h"
#include "engine/step_masks.h"
#include "model/glm5_next/model.h"
#include "schedule/scheduler.h"

namespace godwit::engine {

struct EngineOptions : LedgerSizes {
  std::filesystem::path model_dir;
  std::string device = "cpu";  // cpu | cuda | auto: cuda where there is a device
  std::optional<DType> kv;     // of latents and index keys; none: f32 on the CPU, bf16 on a GPU
  int64_t device_memory =
      0;            // bytes a GPU may give; pages take what the rest leaves. 0 = cache_tokens decides
  int threads = 0;  // of the CPU backend; 0 = all cores
  int64_t itl_target_ms = 30;      // a step that streams wait for should not take longer
  int64_t step_deadline_s = 0;     // a step that takes longer is fatal; 0 = none
  std::filesystem::path dump_dir;  // where a step that died is written to; empty: nowhere
  std::string build;               // for dumps
  // Loading: fraction done and what is being done. Called from the loading thread.
  std::function<void(double fraction, std::string_view what)> progress;
  std::stop_token stop;  // requested: reading weights ends, start() with unavailable
};

class Engine final : public Service, private schedule::Listener {
 public:
  // Loads the model, allocates everything, starts the threads. data_refused or device errors say what is
  // wrong.
  static Result<std::unique_ptr<Engine>> start(const EngineOptions& options,
                                               const std::vector<bool>& has_token);
  ~Engine() override;

  Result<void> submit(Request request) override;
  const Info& info() const override { return info_; }
  Status status() const override;
  void drain(int64_t deadline_ns) override;
  void flush_cache(std::function<void(const Result<Flushed>&)> done) override;

 private:
  struct Record;  // a request in the engine: its sequence's owner
  struct Flush {  // a flush_cache() on its way through the engine thread
    std::function<void(const Result<Flushed>&)> done;
    Flushed freed;
    bool made = false;
  };
  struct Delivery {  // for the delivery thread: wake a reader, bury what has ended, answer a flush
    std::shared_ptr<TokenSink> sink;
    std::unique_ptr<schedule::Sequence> ended;
    std::unique_ptr<Flush> flush;
  };

  Engine(ModelConfig config, Checkpoint checkpoint, const EngineOptions& options);
  Result<void> load(const EngineOptions& options, const std::vector<bool>& has_token);
  void run();
  bool step();
  void deliver();
  void hand_over(Delivery&& delivery);
  void flush_asked_for(bool possible);
  void publish();
  void progress() { last_progress_ns_ = clock_.now_ns(); }

  // health.cpp
  void watch();
  void watch_step(int64_t deadline_ns);
  void die(std::string_view reason);
  void mourn();
  void dump(std::string_view reason) const;

  void on_admit(schedule::Sequence& sequence) override;
  void on_masked_row(schedule::Sequence& sequence, sample::SamplingRow& row) override;
  void on_score(schedule::Sequence& sequence, const sample::Sampled& drawn) override;
  void on_token(schedule::Sequence& sequence, const sample::Sampled& drawn) override;
  void on_end(std::unique_ptr<schedule::Sequence> sequence, schedule::FinishReason reason, int32_t stop_id,
              schedule::Failure failure) override;

  ModelConfig config_;
  Checkpoint checkpoint_;
  EngineOptions options_;
  Info info_;
  SteadyClock clock_;
  std::unique_ptr<kernels::Ops> ops_;
  comm::Solo comm_;
  std::unique_ptr<model::Model> model_;
  std::unique_ptr<cache::Cache> cache_;
  std::unique_ptr<schedule::Scheduler> scheduler_;
  schedule::StepPlan plan_;
  std::unique_ptr<StepMasks> masks_;
  std::vector<sample::Sampled> drawn_;
  StepLog log_;                  // the last steps, for a dump
  std::vector<bool> has_token_;  // ids that may be drawn at all, likewise

  BoundedQueue<std::unique_ptr<schedule::Sequence>> inbox_;
  BoundedQueue<Delivery> outbox_;
  static constexpr size_t kWaitingFlushes = 16;
  BoundedQueue<std::unique_ptr<Flush>> flushes_{kWaitingFlushes};
  std::atomic<uint64_t> next_number_{1};
  std::atomic<int64_t> in_flight_{0};  // submitted and not ended: what the waiting limit counts against
  int64_t ended_ = 0;                  // since the last publish()

  std::atomic<Health> health_{Health::loading};
  std::atomic<bool> stopping_{false};
  std::atomic<int64_t> drain_deadline_ns_{0};
  std::atomic<int64_t> last_progress_ns_{0};
  // When the running step began; kNoStep between steps. The watchdog takes the engine over by exchanging the
  // time for kTaken: from then on the engine thread touches nothing but the step it is stuck in.
  static constexpr int64_t kNoStep = 0, kTaken = -1;
  std::atomic<int64_t> step_started_ns_{kNoStep};
  mutable std::mutex status_mutex_;
  Status status_;  // under status_mutex_
  std::thread engine_thread_;
  std::thread delivery_thread_;
  std::thread watchdog_thread_;
};

}  // namespace godwit::engine
