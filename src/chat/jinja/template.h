// A chat template: parsed once, rendered many times, from any thread.
//
// The language is the subset of Jinja that published chat templates use, in the environment transformers
// gives them (api spec §2.1, §2.12). Not implemented: inheritance and includes, argument unpacking, integer
// arithmetic beyond 64 bits, str.format specifications, custom delimiters.
#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "chat/jinja/limits.h"

namespace godwit::chat::jinja {

struct Tree;

// A run of the render, either from the template's own literals or from what the request brought (api spec
// §2.9). Only in the former do control tokens count as tokens.
struct Segment {
  std::string text;
  bool from_template = false;
};

using Variable = std::pair<std::string_view, const Json*>;

class Template {
 public:
  // `name` is the file named in errors. Fails (data_refused) with "name:line: what was wrong".
  static Result<Template> parse(std::string_view source, std::string name, const Limits& limits = {});

  // `variables` are the template's context; of two with one name the later wins. They are not copied.
  // Neighbouring segments differ in origin; none is empty. `now` replaces the clock of strftime_now. Fails
  // (invalid_request) with "name:line: what was wrong", also for raise_exception and limits.
  Result<std::vector<Segment>> render(std::span<const Variable> variables,
                                      std::optional<std::time_t> now = std::nullopt) const;

  Template(Template&&) noexcept;
  Template& operator=(Template&&) noexcept;
  ~Template();

 private:
  Template(std::unique_ptr<Tree> tree, std::string name, const Limits& limits);

  std::unique_ptr<Tree> tree_;
  std::string name_;
  Limits limits_;
};

}  // namespace godwit::chat::jinja
