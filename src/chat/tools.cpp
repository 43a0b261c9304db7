#include "chat/tools.h"

namespace godwit::chat {

ToolSet::ToolSet(const JsonArray& tools) {
  for (size_t i = 0; i < tools.size(); ++i) {
    const Json& entry = tools[i];
    const Json* function = entry.find("function");
    if (function == nullptr) function = &entry;
    const Json* name = function->find("name");
    if (name == nullptr || !name->is_string()) continue;
    if (!index_.emplace(name->as_string(), tools_.size()).second) continue;
    const Json* parameters = function->find("parameters");
    const Json* strict = function->find("strict");
    tools_.push_back({name->as_string(), parameters != nullptr ? *parameters : Json(),
                      strict != nullptr && *strict == Json(true), i});
  }
}

const Tool* ToolSet::find(std::string_view name) const {
  auto it = index_.find(std::string(name));
  return it == index_.end() ? nullptr : &tools_[it->second];
}

}  // namespace godwit::chat
