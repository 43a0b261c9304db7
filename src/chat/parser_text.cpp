// The text side of OutputParser: channels, white space that waits, stop strings, and how an output ends.
#include <algorithm>

#include "chat/parser.h"

namespace godwit::chat {

void OutputParser::text(std::string_view utf8) {
  if (stopped_ || ended_ || utf8.empty()) return;
  if (state_ == State::want_value || state_ == State::between) {
    while (!utf8.empty() && is_blank(utf8.front())) utf8.remove_prefix(1);
    if (utf8.empty() || state_ == State::between) return;
    begin_value();  // <arg_value> is missing
  }
  switch (state_) {
    case State::reasoning:
      return emit_reasoning(utf8);
    case State::content:
      return emit_content(utf8);
    case State::name:
      region_ += utf8;
      name_ += utf8;
      if (name_.size() > ToolSet::kMaxName) roll_back(true);
      return;
    case State::key:
      key_ += utf8;
      return;
    case State::value: {
      std::string out;
      arguments_->value_text(utf8, out);
      return emit(Delta::Kind::call_arguments, out);
    }
    default:
      return;
  }
}

void OutputParser::emit_reasoning(std::string_view text) {
  if (!any_content_ && calls_ == 0) reasoning_ += text;
  emit(Delta::Kind::reasoning, text);
}

void OutputParser::emit_content(std::string_view text) {
  std::string out;
  stopped_ = stop_.push(text, out);
  show_content(out);
}

// White space at the start and after a call waits until it is known whether a call follows (api spec §3.1,
// AFTER).
void OutputParser::show_content(std::string_view text) {
  if (text.empty()) return;
  if (!hold_blank_) {
    any_content_ = true;
    return emit(Delta::Kind::content, text);
  }
  blank_ += text;
  if (std::all_of(text.begin(), text.end(), is_blank)) return;
  hold_blank_ = false;
  any_content_ = true;
  reasoning_.clear();
  emit(Delta::Kind::content, blank_);
  blank_.clear();
}

// No stop string can begin in the content so far and end in what follows.
void OutputParser::settle_content() {
  std::string out;
  stop_.flush(out);
  show_content(out);
}

void OutputParser::emit(Delta::Kind kind, std::string_view text) {
  if (text.empty()) return;
  int call = kind == Delta::Kind::call_arguments ? calls_ - 1 : -1;
  if (!deltas_.empty() && deltas_.back().kind == kind && deltas_.back().call == call) {
    deltas_.back().text += text;
    return;
  }
  Delta delta;
  delta.kind = kind;
  delta.text = text;
  delta.call = call;
  deltas_.push_back(std::move(delta));
}

std::vector<Delta> OutputParser::take() {
  std::vector<Delta> out = std::move(deltas_);
  deltas_.clear();
  return out;
}

void OutputParser::end(EndReason reason) {
  if (ended_) return;
  if (stopped_) reason = EndReason::stop;
  if (!stopped_) {
    if (state_ == State::name) end_in_name(reason);
    if (arguments_) end_in_call(reason);
    settle_content();
  }
  if (!stopped_ && reason == EndReason::stop) promote();
  if (calls_ == 0) emit(Delta::Kind::content, blank_);
  ended_ = true;
  decide_finish(reason);
}

void OutputParser::end_in_name(EndReason reason) {
  std::string_view name = trim_blank(name_);
  if (reason == EndReason::length || name.empty()) {  // a name that was cut names nothing
    return drop_region();
  }
  if (options_.tools->find(name) == nullptr) return roll_back(false);
  commit_call();
  finish_call(false);
}

// An open call is kept, its JSON closed (api spec §3.8).
void OutputParser::end_in_call(EndReason reason) {
  std::string out;
  bool complete = reason == EndReason::stop && state_ == State::between;
  if (state_ == State::value) {
    reason == EndReason::stop ? arguments_->close_value(out) : arguments_->cut_value(out);
    emit(Delta::Kind::call_arguments, out);
  }
  finish_call(!complete);
}

// The model skipped </think> and answered: an empty success would be worse (api spec §3.8).
void OutputParser::promote() {
  if (state_ != State::reasoning || any_content_ || calls_ > 0 || reasoning_.empty()) return;
  emit(Delta::Kind::promote, reasoning_);
  blank_.clear();
}

void OutputParser::decide_finish(EndReason reason) {
  finish_.stop_string = stop_.matched();
  if (reason == EndReason::length) {
    finish_.reason = FinishReason::length;
  } else if (complete_calls_ > 0 && options_.tool_choice != ToolChoice::named) {
    finish_.reason = FinishReason::tool_calls;
  }
}

}  // namespace godwit::chat
