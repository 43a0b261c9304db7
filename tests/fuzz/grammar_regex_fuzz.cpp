// A regular expression, read as `pattern` and as `regex`: it compiles within its limits or is refused with a
// message.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "grammar/regex.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace godwit::grammar;
  const std::string_view pattern(reinterpret_cast<const char*>(data), size);
  const DfaLimits limits{
      .nfa_states = 5'000, .states = 500, .work = 200'000};  // small, so that a run stays in milliseconds
  for (const RegexOptions& options : {RegexOptions{}, RegexOptions{Spelling::json, true, true}}) {
    const auto dfa = compile_regex(pattern, options, limits);
    if (!dfa.ok()) {
      if (dfa.error().code != godwit::ErrorCode::invalid_request || dfa.error().message.empty()) std::abort();
      continue;
    }
    if (dfa->size() == 0 || dfa->size() > limits.states) std::abort();
    for (uint32_t s = 0; s < dfa->size(); ++s) {
      if (!dfa->at(s).accept && dfa->at(s).edges.empty()) std::abort();  // a dead end
      for (size_t e = 1; e < dfa->at(s).edges.size(); ++e) {
        if (dfa->at(s).edges[e].lo <= dfa->at(s).edges[e - 1].hi) std::abort();
      }
    }
  }
  return 0;
}
