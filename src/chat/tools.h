// The tools a request declares, as the output parser needs them: names and parameter schemas.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "chat/schema.h"

namespace godwit::chat {

struct Tool {
  std::string name;
  Json parameters;      // JSON Schema, null when the tool declares none
  bool strict = false;  // its calls are held to the schema even when calling is the model's choice
  size_t index = 0;     // in the request's list

  Schema schema() const { return Schema(&parameters); }
};

class ToolSet {
 public:
  // Longest name that a call can have (api spec §3.1, NAME).
  static constexpr size_t kMaxName = 256;

  ToolSet() = default;
  // `tools`: normalised (normalise.h); what is no function tool is skipped. Of equal names the first counts.
  explicit ToolSet(const JsonArray& tools);

  bool empty() const { return tools_.empty(); }
  const std::vector<Tool>& all() const { return tools_; }
  const Tool* find(std::string_view name) const;  // nullptr when it is not declared

 private:
  std::vector<Tool> tools_;
  std::unordered_map<std::string, size_t> index_;
};

}  // namespace godwit::chat
