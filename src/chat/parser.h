// OutputParser: ONE state machine from sampled items to reasoning, content and tool calls, for streams and
// whole messages alike (api spec §3). What comes out depends on the items only, never on how they were
// grouped.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "chat/arguments.h"
#include "chat/item.h"
#include "chat/message.h"
#include "chat/stop_strings.h"
#include "chat/tools.h"

namespace godwit::chat {

enum class ToolChoice : uint8_t { none, automatic, required, named };

struct ParserOptions {
  bool thinking = false;                 // the prompt ends inside a think block (starts_thinking in prompt.h)
  std::shared_ptr<const ToolSet> tools;  // null or empty: output is never read as calls
  ToolChoice tool_choice = ToolChoice::automatic;
  bool parallel_tool_calls = true;  // false: the first complete call ends the output
  std::vector<std::string> stop;    // matched in content only
  bool include_stop = false;
  uint64_t id_seed = 0;  // call ids follow from it, so that a resumed stream repeats them
};

class OutputParser {
 public:
  explicit OutputParser(ParserOptions options);
  OutputParser(const OutputParser&) = delete;  // token_counter_ points into the object
  OutputParser& operator=(const OutputParser&) = delete;

  // One sampled id begins; the items up to the next begin_token() are its own. Only for counting.
  void begin_token();
  void control(Control c);
  // Whole code points of UTF-8.
  void text(std::string_view utf8);
  // The last call. Ignores `reason` when stopped().
  void end(EndReason reason);

  // Generation should end here: a stop string matched, or the only call allowed is complete. Items that come
  // after are ignored.
  bool stopped() const { return stopped_; }
  // What the next text would belong to.
  bool in_reasoning() const { return state_ == State::reasoning; }

  // Moves out the deltas since the last take; adjacent pieces of one kind are joined.
  std::vector<Delta> take();
  const Finish& finish() const { return finish_; }  // after end()
  // Ids sampled while reasoning, without </think> (api spec §3.10).
  int64_t reasoning_tokens() const { return reasoning_tokens_; }
  // Calls turned back into text because their name is not declared (api spec §3.2).
  int64_t roll_backs() const { return roll_backs_; }

 private:
  enum class State : uint8_t { reasoning, content, name, key, want_value, value, between };

  void control_in_text(Control c);
  void control_in_name(Control c);
  void control_in_call(Control c);
  void open_call(State origin);
  void commit_call();
  void drop_region();
  void roll_back(bool tags_follow);
  void begin_value();
  void finish_call(bool truncated);
  void end_in_call(EndReason reason);
  void end_in_name(EndReason reason);
  void promote();
  void decide_finish(EndReason reason);

  void emit_reasoning(std::string_view text);
  void emit_content(std::string_view text);
  void show_content(std::string_view text);
  void settle_content();
  void emit(Delta::Kind kind, std::string_view text);

  ParserOptions options_;
  bool tools_on_;
  State state_;
  bool stopped_ = false;
  bool ended_ = false;
  std::vector<Delta> deltas_;
  Finish finish_;

  // Content
  StopStrings stop_;
  bool hold_blank_;    // white space waits: before a call it is dropped
  std::string blank_;  // what waits
  bool any_content_ = false;
  std::string reasoning_;  // all of it, while it may still turn out to be the answer

  // The call being read
  State origin_ = State::content;
  std::string region_;  // raw text since <tool_call>, until the name is known
  std::string name_;
  std::string key_;
  bool tags_are_text_ = false;  // the rest of a call that was turned back into text
  std::optional<ArgumentsWriter> arguments_;
  int calls_ = 0;
  int complete_calls_ = 0;

  // Counting
  int64_t reasoning_tokens_ = 0;
  int64_t tentative_tokens_ = 0;      // ids of a region that began in reasoning
  int64_t* token_counter_ = nullptr;  // which of the two counted the current id
  int64_t roll_backs_ = 0;
};

}  // namespace godwit::chat
