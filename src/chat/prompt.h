// What the rendered prompt says about thinking. Request switches never decide how output is read, only these
// ids do (api spec §2.10, §3.1).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tokenizer/control_ids.h"

namespace godwit::chat {

// Whether the last think tag of the prompt is <think>: the output then begins inside the block.
bool starts_thinking(std::span<const int32_t> prompt, const tokenizer::ControlIds& ids);

// Thinking is off: closes the block that the generation prompt opened, if it did (design §12).
void close_thinking(std::vector<int32_t>& prompt, const tokenizer::ControlIds& ids);

}  // namespace godwit::chat
