// What one render shares between evaluator, filters and methods: memory, budgets, the line being evaluated.
#pragma once

#include <cstdint>
#include <ctime>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/jinja/heap.h"
#include "chat/jinja/limits.h"
#include "chat/jinja/value.h"

namespace godwit::chat::jinja {

class Runtime {
 public:
  Runtime(const Limits& render_limits, std::optional<std::time_t> clock)
      : limits(render_limits), heap(render_limits.heap_bytes), now(clock) {}

  void step(size_t count = 1);                       // fails beyond limits.steps
  void scan(size_t bytes) { step(1 + bytes / 64); }  // work proportional to text

  const Limits& limits;
  Heap heap;
  std::optional<std::time_t> now;  // strftime_now; empty: the clock
  uint32_t line = 1;
  size_t depth = 0;

 private:
  size_t steps_ = 0;
};

// Guards one level of recursion of the evaluator.
class Depth {
 public:
  explicit Depth(Runtime& runtime);
  ~Depth() { --runtime_.depth; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  Runtime& runtime_;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> keywords;

  // Matches the arguments to parameter names, the first `required` of which must be there. Fails like Python
  // does.
  void bind(std::string_view callee, std::initializer_list<std::string_view> names, size_t required = 0);
  // The accessors below work after bind(); a missing argument gives the fallback.
  const Value* find(size_t i) const { return slots_[i]; }
  bool flag(size_t i, bool fallback) const;
  int64_t integer(size_t i, int64_t fallback) const;
  Text text(size_t i) const;  // fails unless it is there and a text

 private:
  std::string_view callee_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> slots_;
};

}  // namespace godwit::chat::jinja
