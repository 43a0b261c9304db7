// The transitions of api spec §3.1 and the calls; parser_text.cpp has the text channels and the end.
#include "chat/parser.h"

#include "base/hash.h"

namespace godwit::chat {
namespace {

// "call_" and 24 characters that follow from the seed and the position of the call.
std::string call_id(uint64_t seed, int call) {
  constexpr std::string_view kAlphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  std::string out = "call_";
  uint64_t word = mix64(seed ^ 0x9e3779b97f4a7c15ull) + static_cast<uint64_t>(call) * 0xbf58476d1ce4e5b9ull;
  for (int i = 0; i < 24; ++i) {
    word = mix64(word + static_cast<uint64_t>(i) + 1);
    out += kAlphabet[word % kAlphabet.size()];
  }
  return out;
}

}  // namespace

OutputParser::OutputParser(ParserOptions options)
    : options_(std::move(options)),
      tools_on_(options_.tools && !options_.tools->empty() && options_.tool_choice != ToolChoice::none),
      state_(options_.thinking ? State::reasoning : State::content),
      stop_(options_.stop, options_.include_stop),
      hold_blank_(tools_on_) {}

void OutputParser::begin_token() {
  token_counter_ = state_ == State::reasoning                             ? &reasoning_tokens_
                   : state_ == State::name && origin_ == State::reasoning ? &tentative_tokens_
                                                                          : nullptr;
  if (token_counter_ != nullptr) ++*token_counter_;
}

void OutputParser::control(Control c) {
  if (stopped_ || ended_) return;
  if (c == Control::think_close && token_counter_ != nullptr) --*token_counter_;
  switch (state_) {
    case State::reasoning:
    case State::content:
      return control_in_text(c);
    case State::name:
      return control_in_name(c);
    default:
      return control_in_call(c);
  }
}

void OutputParser::control_in_text(Control c) {
  if (c == Control::think_open || c == Control::think_close) {
    tags_are_text_ = false;
    state_ = c == Control::think_open ? State::reasoning : State::content;
    return;
  }
  if (c == Control::call_open && tools_on_) {
    tags_are_text_ = false;
    return open_call(state_);
  }
  if (tools_on_ && !tags_are_text_) return;  // a stray tag
  if (c == Control::call_close) tags_are_text_ = false;
  state_ == State::reasoning ? emit_reasoning(text_of(c)) : emit_content(text_of(c));
}

void OutputParser::open_call(State origin) {
  if (token_counter_ == &reasoning_tokens_) {  // whether this id was reasoning depends on what comes
    --reasoning_tokens_;
    ++tentative_tokens_;
  }
  origin_ = origin;
  state_ = State::name;
  region_ = text_of(Control::call_open);
  name_.clear();
}

void OutputParser::control_in_name(Control c) {
  switch (c) {
    case Control::think_open:
    case Control::think_close:
      // No call has these in its name: the model was writing about calls, or gave this one up.
      roll_back(false);
      return control_in_text(c);
    case Control::call_open:
      region_ = text_of(c);
      name_.clear();
      return;
    case Control::key_open:
    case Control::call_close:
      break;
    default:
      region_ += text_of(c);
      return;
  }
  region_ += text_of(c);
  if (c == Control::call_close && trim_blank(name_).empty()) return drop_region();
  if (options_.tools->find(trim_blank(name_)) == nullptr) return roll_back(c == Control::key_open);
  commit_call();
  if (c == Control::call_close) return finish_call(false);
  key_.clear();
  state_ = State::key;
}

// The name is declared: from here on the call is real.
void OutputParser::commit_call() {
  settle_content();
  blank_.clear();
  hold_blank_ = true;
  reasoning_.clear();
  tentative_tokens_ = 0;
  const Tool& tool = *options_.tools->find(trim_blank(name_));
  Delta begin;
  begin.kind = Delta::Kind::call_begin;
  begin.call = calls_++;
  begin.id = call_id(options_.id_seed, begin.call);
  begin.name = tool.name;
  deltas_.push_back(std::move(begin));
  arguments_.emplace(tool);
}

void OutputParser::drop_region() {
  reasoning_tokens_ += tentative_tokens_;
  tentative_tokens_ = 0;
  state_ = origin_;
}

// Everything since <tool_call> was text after all. tags_follow: so are the tags up to </tool_call>.
void OutputParser::roll_back(bool tags_follow) {
  ++roll_backs_;
  drop_region();
  tags_are_text_ = tags_follow;
  state_ == State::reasoning ? emit_reasoning(region_) : emit_content(region_);
}

void OutputParser::control_in_call(Control c) {
  if (state_ == State::value && c != Control::value_close && c != Control::call_close) {
    std::string out;
    arguments_->value_text(text_of(c), out);
    return emit(Delta::Kind::call_arguments, out);
  }
  if (state_ == State::want_value && c == Control::value_close)
    begin_value();  // an empty value without its tag
  if (state_ == State::value) {
    std::string out;
    arguments_->close_value(out);
    emit(Delta::Kind::call_arguments, out);
    state_ = State::between;
    if (c == Control::value_close) return;
  }
  switch (c) {
    case Control::call_close:
      return finish_call(false);
    case Control::call_open:  // </tool_call> is missing
      finish_call(false);
      if (!stopped_) open_call(State::content);
      return;
    case Control::key_open:
      key_.clear();
      state_ = State::key;
      return;
    case Control::key_close:
      if (state_ == State::key) state_ = State::want_value;
      return;
    case Control::value_open:
      if (state_ != State::between) begin_value();
      return;
    case Control::think_open:
    case Control::think_close:
      if (state_ != State::between) return;
      finish_call(false);
      if (!stopped_) control_in_text(c);
      return;
    default:
      return;
  }
}

void OutputParser::begin_value() {
  arguments_->open_value(trim_blank(key_));
  state_ = State::value;
}

void OutputParser::finish_call(bool truncated) {
  std::string out;
  arguments_->finish(out);
  emit(Delta::Kind::call_arguments, out);
  Delta end;
  end.kind = Delta::Kind::call_end;
  end.call = calls_ - 1;
  end.truncated = truncated;
  deltas_.push_back(std::move(end));
  arguments_.reset();
  if (!truncated) ++complete_calls_;
  state_ = State::content;
  stopped_ = stopped_ || (!options_.parallel_tool_calls && complete_calls_ > 0);
}

}  // namespace godwit::chat
