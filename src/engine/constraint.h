// Constraint: which ids one request may draw next, by its grammar and its thinking budget.
#pragma once

#include <optional>
#include <span>

#include "engine/request.h"
#include "grammar/matcher.h"

namespace godwit::engine {

class Constraint {
 public:
  explicit Constraint(OutputRules rules) : rules_(std::move(rules)), thinking_(rules_.thinking) {}

  // The mask of the id after `output`, which goes on from what earlier calls were given. A resumed or
  // recomputed request simply comes with more ids. may_end: false withholds the ids that end the generation
  // as long as there is another way on. All bits are clear when `output` breaks the grammar, which only ids
  // that were forced from outside can. mask: [(V + 31) / 32].
  void fill(std::span<const int32_t> output, bool may_end, std::span<uint32_t> mask);
  bool has_grammar() const { return rules_.grammar != nullptr; }

 private:
  void take(int32_t id);
  void withhold_end(std::span<uint32_t> mask) const;

  OutputRules rules_;
  // Made on first use: it may wait for another request's walk through the same grammar.
  std::optional<grammar::Matcher> matcher_;
  size_t read_ = 0;      // ids of the output
  int64_t thought_ = 0;  // of those, inside think blocks
  bool thinking_;
  bool broken_ = false;
};

}  // namespace godwit::engine
