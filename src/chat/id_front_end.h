// IdFrontEnd: sampled ids to the items of OutputParser. Only ids are tags here: a tag spelled by ordinary
// tokens is text.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "chat/parser.h"
#include "tokenizer/control_ids.h"
#include "tokenizer/detokenizer.h"

namespace godwit::chat {

struct IdOptions {
  // Ids that may end the output: the model's own unless they are ignored, and the request's. Their text is
  // withheld until the next id shows that they did not.
  std::vector<int32_t> stop_ids;
  bool show_special = false;  // special tokens give their text (skip_special_tokens: false)
};

class IdFrontEnd {
 public:
  IdFrontEnd(std::shared_ptr<const tokenizer::Tokenizer> tokenizer, const tokenizer::ControlIds& ids,
             IdOptions options, ParserOptions parser);

  // One sampled id, the stop id at the end included. False once no more ids are wanted: this id was the last
  // that counts, the request should be cancelled and end() called. Further ids are ignored.
  bool push(int32_t id);
  void end(EndReason reason);

  OutputParser& parser() { return parser_; }
  const OutputParser& parser() const { return parser_; }
  // Ids that count as output (api spec §3.10).
  int64_t completion_tokens() const { return completion_tokens_; }

 private:
  void feed(int32_t id);

  std::shared_ptr<const tokenizer::Tokenizer> tokenizer_;
  tokenizer::ControlIds ids_;
  IdOptions options_;
  bool include_stop_;
  OutputParser parser_;
  tokenizer::Detokenizer detokenizer_;
  int32_t withheld_ = -1;
  int64_t completion_tokens_ = 0;
};

}  // namespace godwit::chat
