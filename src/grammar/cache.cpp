#include "grammar/cache.h"

namespace godwit::grammar {
namespace {

// Two specs with this text compile to the same grammar.
std::string text_of(const GrammarSpec& spec) {
  JsonArray tools;
  for (const ToolSpec& tool : spec.tools)
    tools.push_back(JsonArray{tool.name, tool.parameters, tool.constrained});
  JsonArray choices;
  for (const std::string& choice : spec.choices) choices.push_back(choice);
  return dump_json(JsonArray{static_cast<int>(spec.content), spec.schema, spec.regex, std::move(choices),
                             std::move(tools), spec.parallel_calls},
                   JsonStyle::compact());
}

}  // namespace

Result<std::shared_ptr<const Grammar>> GrammarCache::get(const GrammarSpec& spec) {
  std::string text = text_of(spec);
  {
    const std::lock_guard lock(mutex_);
    if (auto found = by_text_.find(text); found != by_text_.end()) {
      ++counts_.hits;
      entries_.splice(entries_.begin(), entries_, found->second);
      return found->second->second;
    }
    ++counts_.misses;
  }
  GODWIT_ASSIGN(auto grammar, compile(spec, index_));  // without the lock: others need not wait
  const std::lock_guard lock(mutex_);
  if (auto found = by_text_.find(text); found != by_text_.end()) return found->second->second;
  entries_.emplace_front(std::move(text), grammar);
  by_text_[entries_.front().first] = entries_.begin();
  if (entries_.size() > capacity_) {
    by_text_.erase(entries_.back().first);
    entries_.pop_back();
  }
  return grammar;
}

GrammarCache::Counts GrammarCache::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

}  // namespace godwit::grammar
