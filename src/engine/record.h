// The engine's record of a request: what the schedule does not need to know.
#pragma once

#include "engine/constraint.h"
#include "engine/engine.h"

namespace godwit::engine {

struct Engine::Record {
  std::string id;
  std::shared_ptr<TokenSink> sink;
  std::optional<Constraint> constraint;  // of a masked request
  bool wants_history = false;
  bool started = false;  // Start has been pushed
};

}  // namespace godwit::engine
