#include "tokenizer/control_ids.h"

namespace godwit::tokenizer {
namespace {

struct Row {
  std::string_view content;
  int32_t ControlIds::*id;
};

constexpr Row kRows[] = {
    {"<|endoftext|>", &ControlIds::end_of_text},
    {"<|system|>", &ControlIds::system},
    {"<|user|>", &ControlIds::user},
    {"<|assistant|>", &ControlIds::assistant},
    {"<|observation|>", &ControlIds::observation},
    {"<think>", &ControlIds::think_open},
    {"</think>", &ControlIds::think_close},
    {"<tool_call>", &ControlIds::tool_call_open},
    {"</tool_call>", &ControlIds::tool_call_close},
    {"<tool_response>", &ControlIds::tool_response_open},
    {"</tool_response>", &ControlIds::tool_response_close},
    {"<arg_key>", &ControlIds::arg_key_open},
    {"</arg_key>", &ControlIds::arg_key_close},
    {"<arg_value>", &ControlIds::arg_value_open},
    {"</arg_value>", &ControlIds::arg_value_close},
    {"/nothink", &ControlIds::no_think},
    {"<|begin_of_image|>", &ControlIds::image_begin},
    {"<|end_of_image|>", &ControlIds::image_end},
    {"<|image|>", &ControlIds::image},
    {"<|begin_of_video|>", &ControlIds::video_begin},
    {"<|end_of_video|>", &ControlIds::video_end},
    {"<|video|>", &ControlIds::video},
    {"<|begin_of_audio|>", &ControlIds::audio_begin},
    {"<|end_of_audio|>", &ControlIds::audio_end},
};

}  // namespace

ControlIds find_control_ids(const Tokenizer& tokenizer) {
  ControlIds ids;
  for (const AddedToken& token : tokenizer.added_tokens()) {
    for (const Row& row : kRows) {
      if (token.content == row.content) ids.*row.id = token.id;
    }
  }
  return ids;
}

}  // namespace godwit::tokenizer
