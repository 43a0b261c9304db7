// Traffic: random requests of every shape, with seeds. Sessions grow by the answers they got, branch and are
// dropped.
#pragma once

#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "schedule/sequence.h"
#include "shadow_model.h"

namespace godwit::simulator {

struct TrafficShape {
  int64_t context = 4096;
  int64_t long_prompt = 1000;   // one prompt in ten is up to so long, and a session up to twice that
  int64_t shortest_answer = 0;  // what max_tokens is at the least, where the context has room
  int64_t longest_answer = 200;
  size_t sessions = 32;
  int64_t one_in_huge = 0;  // one request in so many has a prompt of half to all of the context; 0 = none
};

class Traffic {
 public:
  Traffic(const TrafficShape& shape, uint64_t seed)
      : shape_(shape), random_(seed), sessions_(shape.sessions) {}

  struct Made {
    std::unique_ptr<schedule::Sequence> sequence;
    int64_t session = -1;  // tell() its answer when it has ended
  };
  Made next(uint64_t number, int64_t now_ns) {
    Made out;
    auto s = std::make_unique<schedule::Sequence>();
    const int64_t room = shape_.context - 1, most = std::min(shape_.long_prompt, room / 3);
    if (shape_.one_in_huge > 0 && one_in(shape_.one_in_huge)) {
      s->tokens = ids(room / 2 + below(room / 2));
    } else if (one_in(3)) {
      out.session = below(static_cast<int64_t>(sessions_.size()));
      auto& history = sessions_[static_cast<size_t>(out.session)];
      if (static_cast<int64_t>(history.size()) > 2 * most) history.clear();
      if (one_in(12)) history.resize(static_cast<size_t>(below(static_cast<int64_t>(history.size()) + 1)));
      const auto user = ids(skewed(std::min<int64_t>(300, room / 4)));
      history.insert(history.end(), user.begin(), user.end());
      s->tokens = history;
    } else {
      s->tokens = ids(skewed(one_in(10) ? most : std::min<int64_t>(400, most)));
    }
    s->number = number;
    s->prompt_tokens = s->size();
    s->max_tokens =
        std::min(std::max(shape_.shortest_answer, skewed(shape_.longest_answer)), shape_.context - s->size());
    if (one_in(100) && s->max_tokens > 1) {  // resumed from another replica
      const auto forced = ids(below(s->max_tokens));
      s->tokens.insert(s->tokens.end(), forced.begin(), forced.end());
    }
    s->forced_end = s->size();
    s->tokens.reserve(static_cast<size_t>(s->prompt_tokens + s->max_tokens));
    s->lease.reserve(s->prompt_tokens + s->max_tokens);
    s->keys =
        cache::block_keys({s->tokens.data(), static_cast<size_t>(s->prompt_tokens)}, one_in(20) ? 1 : 0);
    s->sampling.seed = number;
    s->ignore_eos = one_in(2);
    s->priority = one_in(4) ? static_cast<int32_t>(below(5)) - 2 : 0;
    s->submitted_ns = now_ns;
    if (one_in(50)) s->deadline_ns = now_ns + 1 + below(20'000'000'000);
    out.sequence = std::move(s);
    return out;
  }
  // The client of a session sends what it got with its next turn.
  void tell(int64_t session, const std::vector<int32_t>& tokens) {
    if (session >= 0) sessions_[static_cast<size_t>(session)] = tokens;
  }

  bool one_in(int64_t n) { return below(n) == 0; }
  int64_t below(int64_t n) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(std::max<int64_t>(n, 1)));
  }

 private:
  // 1 … most, short ones far more often.
  int64_t skewed(int64_t most) { return 1 + below(1 + below(std::max<int64_t>(most, 1))); }
  std::vector<int32_t> ids(int64_t length) {
    std::vector<int32_t> out(static_cast<size_t>(std::max<int64_t>(length, 1)));
    uint64_t bits = random_();
    for (int32_t& id : out) {
      bits = mix64(bits + 1);
      id = static_cast<int32_t>(bits % kVocabulary);
    }
    return out;
  }

  TrafficShape shape_;
  std::mt19937_64 random_;
  std::vector<std::vector<int32_t>> sessions_;
};

}  // namespace godwit::simulator
