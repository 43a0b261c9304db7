// ControlIds: the tokens that give model output its structure (api spec §1.2, §2.2), found by content; -1
// when the vocabulary has none. Only added tokens count: a control string spelled by ordinary tokens is text.
#pragma once

#include <cstdint>

#include "tokenizer/tokenizer.h"

namespace godwit::tokenizer {

struct ControlIds {
  int32_t end_of_text = -1;  // <|endoftext|>
  int32_t system = -1;       // <|system|>
  int32_t user = -1;
  int32_t assistant = -1;
  int32_t observation = -1;
  int32_t think_open = -1;  // <think>
  int32_t think_close = -1;
  int32_t tool_call_open = -1;  // <tool_call>
  int32_t tool_call_close = -1;
  int32_t tool_response_open = -1;
  int32_t tool_response_close = -1;
  int32_t arg_key_open = -1;
  int32_t arg_key_close = -1;
  int32_t arg_value_open = -1;
  int32_t arg_value_close = -1;
  int32_t no_think = -1;     // /nothink
  int32_t image_begin = -1;  // <|begin_of_image|>
  int32_t image_end = -1;
  int32_t image = -1;  // <|image|>, one per patch group
  int32_t video_begin = -1;
  int32_t video_end = -1;
  int32_t video = -1;
  int32_t audio_begin = -1;
  int32_t audio_end = -1;
};

ControlIds find_control_ids(const Tokenizer& tokenizer);

}  // namespace godwit::tokenizer
