// Matcher: one request's way through its grammar, token by token.
//
// Rows are checked in step (design §3): fill_mask gives the mask of the next token, in the layout of
// kernels::Sample::masks; accept moves on; under speculation accept the drafted ids one by one, asking for a
// mask before each, and roll back to where the target's draws left the draft.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "grammar/grammar.h"

namespace godwit::grammar {

class Matcher {
 public:
  static constexpr size_t kMaxRollback = 64;  // ids

  // reasoning: the output begins inside <think>. Until </think> (or, when calls may open the output,
  // <tool_call>) any token is allowed but those that end the generation; the grammar starts right after.
  Matcher(std::shared_ptr<const Grammar> grammar, bool reasoning);

  // Bit i of word i / 32: id i is allowed next. mask: [index().mask_words()]. At least one bit is set, until
  // finished().
  void fill_mask(std::span<uint32_t> mask);
  // Whether `id` is allowed; if so the matcher has moved past it, else it is unchanged.
  bool accept(int32_t id);
  // Undoes the last `count` accepted ids, at most kMaxRollback and at most accepted().
  void rollback(size_t count);

  bool reasoning() const { return here() == kReasoning; }  // the grammar has not started yet
  bool is_complete();                                      // an end id is allowed
  bool finished() const { return here() == kFinished; }    // an end id was accepted
  size_t accepted() const { return accepted_; }

 private:
  static constexpr StateId kReasoning = UINT32_MAX - 1;
  static constexpr StateId kFinished = UINT32_MAX - 2;

  StateId here() const { return places_[accepted_ % places_.size()]; }
  void move_to_current_memory();
  StateId after(int32_t id);

  std::shared_ptr<const Grammar> grammar_;
  std::shared_ptr<Grammar::Memory> memory_;
  std::array<StateId, kMaxRollback + 1> places_;  // ring: the state after each of the last ids
  size_t accepted_ = 0;
};

}  // namespace godwit::grammar
