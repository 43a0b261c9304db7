#include "soak.h"

#include <array>
#include <bit>
#include <stdexcept>
#include <unordered_map>

namespace godwit::simulator {
namespace {

using schedule::FinishReason;
using schedule::Sequence;

void require(bool holds, const char* what) {
  if (!holds) throw std::runtime_error(what);
}

constexpr int64_t kMs = 1'000'000;

class Soak final : public schedule::Listener {
 public:
  explicit Soak(const SoakOptions& o)
      : options_(o),
        cache_({o.pages + 1, static_cast<int32_t>(o.limits.max_sequences) + 1, o.snapshots, o.host,
                StepCosts::kRecordBytes}),
        scheduler_(o.limits, cache_, {0, 1}, clock_, *this),
        model_(o.pages + 1, static_cast<int32_t>(o.limits.max_sequences) + 1, o.snapshots, o.host),
        traffic_(o.shape, o.seed),
        seen_(static_cast<size_t>(o.pages) + 1, 0) {
    scheduler_.prepare(plan_);
    model_.damage_every = 501;
  }

  SoakReport run() {
    while (made_ < options_.requests || !scheduler_.idle()) {
      arrive();
      disturb();
      if (scheduler_.idle()) {
        check_idle();
        clock_.advance_ns(kMs);
      } else {
        step();
      }
    }
    cache_.flush();
    require(cache_.pages_cached() == 0 && cache_.snapshots_used() == 0, "a flushed cache holds something");
    report_.virtual_seconds = static_cast<double>(clock_.now_ns()) / 1e9;
    report_.evictions = static_cast<int64_t>(cache_.evictions());
    report_.host_hits = static_cast<int64_t>(cache_.host_hits());
    report_.swaps = model_.swaps;
    require(report_.ended() + report_.refused == options_.requests, "a request never ended");
    return std::move(report_);
  }

  void on_admit(Sequence& s) override {
    Client& c = client(s);
    for_waiting([&](const Sequence& w) {
      require(&w == &s || s.rank < w.rank || (s.rank == w.rank && s.number < w.number),
              "a request was overtaken");
    });
    s.paused = c.paused_until > report_.steps;
    if (c.admitted) return;
    c.admitted = true;
    report_.queued.add(clock_.now_ns() - s.submitted_ns);
    report_.prompt_tokens += s.prompt_tokens;
    report_.cached_tokens += s.lease.cached;
  }

  void on_token(Sequence& s, const sample::Sampled& drawn) override {
    Client& c = client(s);
    require(!s.paused, "a paused request got a token");
    require(drawn.finite != 0, "a row that is not finite gave a token");
    ++report_.drawn;
    const int64_t now = clock_.now_ns();
    if (c.last_token_ns == 0) {
      report_.first_token.add(now - s.submitted_ns);
    } else if (c.reading) {
      report_.gap.add(now - c.last_token_ns);
    }
    c.last_token_ns = now;
    c.reading = true;
  }

  void on_end(std::unique_ptr<Sequence> s, FinishReason reason, int32_t, schedule::Failure failure) override {
    const auto at = clients_.find(s->number);
    require(at != clients_.end(), "a request ended twice");
    require(!s->lease.held(), "a request ended with a lease");
    require((reason == FinishReason::error) == (failure != schedule::Failure::none),
            "an end without its reason");
    const Client c = at->second;
    clients_.erase(at);
    report_.preemptions += s->preemptions;
    report_.most_preemptions = std::max<int64_t>(report_.most_preemptions, s->preemptions);
    check_tokens(*s);
    switch (reason) {
      case FinishReason::stop:
        ++report_.stopped;
        break;
      case FinishReason::length:
        ++report_.full_length;
        break;
      case FinishReason::cancelled:
        require(s->cancelled, "a request was cancelled by nobody");
        ++report_.cancelled;
        break;
      case FinishReason::error:
        if (failure == schedule::Failure::deadline) {
          ++report_.overdue;
        } else {
          require(failure == schedule::Failure::not_finite, "a request failed for another reason");
          require(s->number == poisoned_, "a request failed that had finite logits");
          ++report_.not_finite;
        }
    }
    traffic_.tell(c.session, s->tokens);
  }

 private:
  struct Client {
    int64_t session = -1;
    int64_t paused_until = 0;  // step
    int64_t last_token_ns = 0;
    bool reading = false;  // neither paused nor preempted since its last token
    bool admitted = false;
  };

  Client& client(const Sequence& s) { return clients_.at(s.number); }

  template <class F>
  void for_waiting(F&& f) {
    scheduler_.for_each([&](Sequence& s) {
      if (!s.lease.held()) f(s);
    });
  }

  // Load swings between nothing and more than the line takes.
  void arrive() {
    if (report_.steps >= next_swing_ || scheduler_.idle()) {
      next_swing_ = report_.steps + 200 + traffic_.below(3000);
      const int64_t most = options_.limits.max_sequences + options_.limits.max_waiting;
      level_ = traffic_.one_in(6)
                   ? 0
                   : 1 + traffic_.below(traffic_.one_in(4) ? most + 8 : options_.limits.max_sequences);
    }
    for (int64_t n = 1 + traffic_.below(3);
         n > 0 && made_ < options_.requests && static_cast<int64_t>(clients_.size()) < level_; --n) {
      auto made = traffic_.next(++made_, clock_.now_ns());
      clients_[made.sequence->number].session = made.session;
      const uint64_t number = made.sequence->number;
      if (scheduler_.add(std::move(made.sequence))) continue;
      clients_.erase(number);
      ++report_.refused;
      level_ = static_cast<int64_t>(clients_.size());  // who is refused stays away for a while
      return;
    }
  }

  // Clients leave and readers stall.
  void disturb() {
    scheduler_.for_each([&](Sequence& s) {
      Client& c = client(s);
      if (traffic_.one_in(8000)) s.cancelled = true;
      if (traffic_.one_in(400)) c.paused_until = report_.steps + traffic_.below(60);
      s.paused = c.paused_until > report_.steps;
      if (s.paused || !s.lease.held()) c.reading = false;
    });
  }

  void step() {
    const int64_t before_ns = clock_.now_ns();
    scheduler_.plan(plan_);
    ++report_.steps;
    check_plan(before_ns);
    const int64_t copies = StepCosts::copy_ns(plan_);
    clock_.advance_ns(plan_.empty() ? kMs
                                    : options_.costs.ns(plan_) * (97 + traffic_.below(7)) / 100 + copies);
    if (plan_.empty()) return;
    model_.run(plan_, drawn_);
    poisoned_ = 0;
    if (!drawn_.empty() && traffic_.one_in(3000)) poison();
    scheduler_.apply(plan_, drawn_.data(), {copies, model_.damaged});
    check_pools();
  }

  // One row of the step is not finite.
  void poison() {
    int64_t draw = traffic_.below(static_cast<int64_t>(drawn_.size()));
    drawn_[static_cast<size_t>(draw)].finite = 0;
    for (const schedule::PlanSequence& p : plan_.sequences)
      if (p.sampled_rows == 1 && draw-- == 0) poisoned_ = p.request;
  }

  void check_plan(int64_t now_ns) {
    int64_t ready = 0, prompts = 0, decodes = 0;
    scheduler_.for_each([&](const Sequence& s) {
      require(!s.cancelled, "a cancelled request is still here after a step was planned");
      require(s.deadline_ns == 0 || now_ns <= s.deadline_ns, "an overdue request is still here");
      if (!s.lease.held() || s.paused || (s.lease.loading() && !cache_.arrived(s.lease))) return;
      // Pages that a stream lacks are on their way to the host, or somebody would have been sent away.
      const bool lacks_pages = s.decoding() && s.size() > s.lease.tokens();
      require(!lacks_pages || cache_.leaving(), "a stream has no pages and nobody makes room");
      report_.waits += lacks_pages;
      ready += s.decoding() && s.size() - s.computed == 1 && !lacks_pages;
      prompts += !s.decoding();
    });
    for (const schedule::PlanSequence& p : plan_.sequences) {
      decodes += p.rows.kind == kernels::RowKind::decode;
      report_.forced_rows += p.rows.kind == kernels::RowKind::forced ? p.rows.rows : 0;
    }
    require(decodes == ready, "a stream that could run got no row");
    const int64_t prompt_rows = plan_.rows() - plan_.decode_rows();
    // A step without prompt rows measures what so many decode rows cost, once for each octave.
    const uint64_t octave = std::bit_width(static_cast<uint64_t>(plan_.decode_rows()));
    const bool measures = prompts > 0 && prompt_rows == 0 && !measured_[octave];
    if (prompt_rows == 0) measured_[octave] = true;
    require((prompt_rows > 0) == (prompts > 0) || measures, "prompts wait and none got a row");
    require(prompt_rows <= options_.limits.prefill_tokens, "more prompt rows than a step may carry");
    check_copies();
    report_.prompt_rows += prompt_rows;
  }

  // Copies take a quarter of the target at most, or as long as two records.
  void check_copies() {
    const int64_t took = StepCosts::copy_ns(plan_);
    report_.copies.add(took);
    report_.moves += static_cast<int64_t>(plan_.moves.size());
    schedule::StepPlan two;
    two.moves.assign(2, {.what = cache::Move::What::slot});
    require(took <= std::max(options_.limits.itl_target_ns * 26 / 100, StepCosts::copy_ns(two)),
            "a step copies more than it may");
    require(!plan_.moves.empty() || !cache_.copying(), "copies wait and the step makes none");
  }

  // Counts pages and slots from the leases and compares with what the pools say.
  void check_pools() {
    if (options_.pages > 4096 && report_.steps % 256 != 0) return;
    ++stamp_;
    int32_t pages = 0, slots = 0;
    scheduler_.for_each([&](const Sequence& s) {
      slots += s.lease.held();
      for (size_t i = 0; i < s.lease.pages.size(); ++i) {
        int64_t& seen = seen_.at(static_cast<size_t>(s.lease.pages[i]));
        require(seen != stamp_ || i < static_cast<size_t>(s.lease.shared), "a private page has two owners");
        pages += seen != stamp_;
        seen = stamp_;
      }
    });
    // What is shared and on its way to the host counts as used, too.
    require(cache_.leaving() ? pages <= cache_.pages_used() : pages == cache_.pages_used(), "pages leaked");
    require(slots == cache_.slots_used() && slots == scheduler_.running(), "slots leaked");
    require(cache_.pages_used() + cache_.pages_cached() <= options_.pages, "more pages than there are");
  }

  void check_idle() {
    ++report_.idle_times;
    require(clients_.empty(), "idle, and a request has not ended");
    require(cache_.pages_used() == 0 && cache_.slots_used() == 0, "idle, and something is held");
  }

  static void check_tokens(const Sequence& s) {
    ShadowModel::Alone alone;
    for (int64_t i = 0; i < s.size(); ++i) {
      const int32_t id = s.tokens[static_cast<size_t>(i)];
      require(i < s.forced_end || alone.next(s.sampling.seed) == id,
              "a token differs from the request alone");
      alone.feed(id);
    }
  }

  SoakOptions options_;
  VirtualClock clock_;
  cache::Cache cache_;
  schedule::Scheduler scheduler_;
  ShadowModel model_;
  Traffic traffic_;
  schedule::StepPlan plan_;
  std::vector<sample::Sampled> drawn_;
  std::unordered_map<uint64_t, Client> clients_;
  std::vector<int64_t> seen_;  // [pages] stamp of the last check that met it
  std::array<bool, 65> measured_{};
  int64_t stamp_ = 0, next_swing_ = 0, level_ = 1;
  int64_t made_ = 0;
  uint64_t poisoned_ = 0;
  SoakReport report_;
};

}  // namespace

SoakReport soak(const SoakOptions& options) {
  return Soak(options).run();
}

std::vector<SoakOptions> worlds(int64_t requests) {
  SoakOptions tiny;
  tiny.name = "tiny pool";
  tiny.requests = requests * 45 / 100;
  tiny.limits = {
      .context = 2048, .max_sequences = 8, .max_waiting = 24, .prefill_tokens = 512, .snapshot_stride = 512};
  tiny.pages = 80;  // two and a half full contexts for eight sequences
  tiny.snapshots = 6;
  tiny.host = {.pages = 60, .snapshots = 5, .slots = 2};
  tiny.shape = {.context = 2048, .longest_answer = 200, .sessions = 20};

  SoakOptions grown = tiny;
  grown.name = "long answers in a tight pool";
  grown.requests = requests / 200;
  grown.seed = 2;
  grown.limits.context = 16384;
  grown.limits.prefill_tokens = 2048;
  grown.pages = 257;  // one full context
  grown.host = {.pages = 500, .snapshots = 5, .slots = 3};
  grown.shape = {.context = 16384,
                 .long_prompt = 3000,
                 .shortest_answer = 9000,
                 .longest_answer = 14'000,
                 .sessions = 20};

  SoakOptions server = tiny;
  server.name = "32 sequences";
  server.requests = requests - tiny.requests - grown.requests;
  server.seed = 3;
  server.limits = {.context = 1 << 20, .max_sequences = 32, .max_waiting = 30, .prefill_tokens = 16384};
  server.pages = 24'000;
  server.snapshots = 300;
  server.host = {.pages = 8000, .snapshots = 60, .slots = 4};
  server.shape = {.context = 16384, .long_prompt = 5000, .longest_answer = 200, .sessions = 300};

  SoakOptions huge = server;
  huge.name = "million-token prompts among short ones";
  huge.requests = requests / 200;
  server.requests -= huge.requests;
  huge.seed = 4;
  huge.pages = 40'000;
  huge.shape = {
      .context = 1 << 20, .long_prompt = 5000, .longest_answer = 200, .sessions = 50, .one_in_huge = 1000};
  return {tiny, grown, server, huge};
}

}  // namespace godwit::simulator
