#include "chat/id_front_end.h"

#include <algorithm>
#include <optional>

namespace godwit::chat {
namespace {

std::optional<Control> control_of(int32_t id, const tokenizer::ControlIds& ids) {
  if (id < 0) return std::nullopt;
  const std::pair<int32_t, Control> table[] = {
      {ids.think_open, Control::think_open},     {ids.think_close, Control::think_close},
      {ids.tool_call_open, Control::call_open},  {ids.tool_call_close, Control::call_close},
      {ids.arg_key_open, Control::key_open},     {ids.arg_key_close, Control::key_close},
      {ids.arg_value_open, Control::value_open}, {ids.arg_value_close, Control::value_close}};
  for (const auto& [tag, control] : table) {
    if (id == tag) return control;
  }
  return std::nullopt;
}

}  // namespace

IdFrontEnd::IdFrontEnd(std::shared_ptr<const tokenizer::Tokenizer> tokenizer,
                       const tokenizer::ControlIds& ids, IdOptions options, ParserOptions parser)
    : tokenizer_(std::move(tokenizer)),
      ids_(ids),
      options_(std::move(options)),
      include_stop_(parser.include_stop),
      parser_(std::move(parser)),
      detokenizer_(tokenizer_, !options_.show_special) {}

bool IdFrontEnd::push(int32_t id) {
  if (parser_.stopped()) return false;
  ++completion_tokens_;
  if (withheld_ >= 0) {
    feed(withheld_);
    withheld_ = -1;
    if (parser_.stopped()) {  // the withheld id was the last that counts
      --completion_tokens_;
      return false;
    }
  }
  bool may_stop =
      std::find(options_.stop_ids.begin(), options_.stop_ids.end(), id) != options_.stop_ids.end();
  if (may_stop && !control_of(id, ids_)) {
    withheld_ = id;
  } else {
    feed(id);
  }
  return !parser_.stopped();
}

void IdFrontEnd::end(EndReason reason) {
  if (withheld_ >= 0 && (reason == EndReason::length || include_stop_)) feed(withheld_);
  withheld_ = -1;
  if (!parser_.stopped()) parser_.text(detokenizer_.flush());
  parser_.end(reason);
}

void IdFrontEnd::feed(int32_t id) {
  parser_.begin_token();
  if (auto control = control_of(id, ids_)) {
    parser_.text(detokenizer_.flush());
    parser_.control(*control);
  } else {
    parser_.text(detokenizer_.push(id));
  }
}

}  // namespace godwit::chat
