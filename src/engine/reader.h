// Reader: the other end of a TokenSink for whoever may block: self tests, benches and unit tests.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/token_sink.h"

namespace godwit::engine {

class Reader {
 public:
  explicit Reader(size_t capacity = 4096)
      : sink(std::make_shared<TokenSink>(capacity, [state = state_] {
          std::lock_guard lock(state->mutex);
          state->woken = true;
          state->changed.notify_all();
        })) {}

  // Reads until the End or until `enough` tokens have come. False when nothing came for two minutes.
  bool read(size_t enough = SIZE_MAX) {
    while (!end && tokens.size() < enough) {
      sink->take(batch_);
      if (batch_.start) start = batch_.start;
      for (const Token& t : batch_.tokens) tokens.push_back(t.id);
      for (const Token& t : batch_.tokens) logprobs.push_back(t.logprob);
      for (const TopLogprobs& t : batch_.top) top.push_back(t);
      for (const Token& t : batch_.scores) scores.push_back(t);
      if (batch_.end) {
        ++ends;
        end = batch_.end;
      }
      if (!batch_.empty()) continue;
      std::unique_lock lock(state_->mutex);
      if (!state_->changed.wait_for(lock, std::chrono::minutes(2), [&] { return state_->woken; }))
        return false;
      state_->woken = false;
    }
    return true;
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool woken = false;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
  TokenSink::Batch batch_;

 public:
  std::shared_ptr<TokenSink> sink;
  std::optional<Start> start;
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  std::vector<TopLogprobs> top;
  std::vector<Token> scores;  // of the prompt
  std::optional<End> end;
  int ends = 0;
};

}  // namespace godwit::engine
