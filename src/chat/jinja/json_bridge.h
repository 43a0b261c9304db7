// Between the request's Json and the evaluator's values.
#pragma once

#include "base/json.h"
#include "chat/jinja/runtime.h"

namespace godwit::chat::jinja {

// Text is not copied: `json` must outlive the render. Fails beyond the nesting limit.
Value from_json(Runtime& runtime, const Json& json);
// What json.dumps accepts; anything else fails with Python's words. Keys become strings.
Json to_json(Runtime& runtime, const Value& v);

}  // namespace godwit::chat::jinja
