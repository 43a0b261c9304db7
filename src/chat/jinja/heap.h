// Owner of everything one render builds, with a byte budget that is charged before the memory is taken.
#pragma once

#include <deque>
#include <string>
#include <string_view>

#include "base/json.h"
#include "chat/jinja/scope.h"
#include "chat/jinja/value.h"

namespace godwit::chat::jinja {

class Heap {
 public:
  explicit Heap(size_t limit) : limit_(limit) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  void charge(size_t bytes);  // fails beyond the limit

  Buffer& buffer(size_t reserve = 0);
  Sequence& sequence(size_t reserve = 0);
  Dict& dict();
  Scope& scope(Scope* parent);
  Macro& macro();
  Loop& loop();
  Method& method();

  void append(Buffer& out, const Text& text);
  void append(Buffer& out, std::string_view text, bool from_template);
  void add(Sequence& list, const Value& item);
  void set(Dict& dict, const Value& key, const Value& value);

  // a + b. Appends in place when `a` ends its buffer and there is room, so that `ns.s = ns.s + x` in a loop
  // stays linear.
  Text concat(const Text& a, const Text& b);
  // A text of its own bytes; template text only if made from nothing but template text.
  Text own(std::string bytes, bool from_template = false);
  // Keeps a parsed document for as long as the values that view into it.
  const Json& keep(Json document);
  Value pair(const Value& first, const Value& second);

 private:
  size_t limit_;
  size_t used_ = 0;
  std::deque<Buffer> buffers_;
  std::deque<Sequence> sequences_;
  std::deque<Dict> dicts_;
  std::deque<Scope> scopes_;
  std::deque<Macro> macros_;
  std::deque<Loop> loops_;
  std::deque<Method> methods_;
  std::deque<Json> documents_;
};

}  // namespace godwit::chat::jinja
