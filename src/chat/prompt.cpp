#include "chat/prompt.h"

namespace godwit::chat {

bool starts_thinking(std::span<const int32_t> prompt, const tokenizer::ControlIds& ids) {
  for (size_t i = prompt.size(); i-- > 0;) {
    if (prompt[i] < 0) continue;  // absent tags have id -1
    if (prompt[i] == ids.think_open) return true;
    if (prompt[i] == ids.think_close) return false;
  }
  return false;
}

void close_thinking(std::vector<int32_t>& prompt, const tokenizer::ControlIds& ids) {
  if (ids.think_close >= 0 && starts_thinking(prompt, ids)) prompt.push_back(ids.think_close);
}

}  // namespace godwit::chat
