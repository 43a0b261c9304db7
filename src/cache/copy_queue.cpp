#include "cache/copy_queue.h"

namespace godwit::cache {

CopyQueue::CopyQueue(const RecordBytes& bytes, size_t most_out, size_t most_in, size_t slots)
    : bytes_(bytes), outs_(most_out), ins_(most_in), arriving_(slots, 0) {
  planned_moves_.reserve(kMostMoves);
}

int64_t CopyQueue::bytes(int64_t most_out, int64_t most_in) {
  return most_out * static_cast<int64_t>(sizeof(Out)) + most_in * static_cast<int64_t>(sizeof(In));
}

void CopyQueue::begin_step(int64_t bytes) {
  left_ = std::max(bytes, least_bytes());
  for_ins_ = can_arrive() ? left_ / 2 : 0;
  planned_ = 0;
}

void CopyQueue::push_out(const Move& move, Source source, int32_t host_slot) {
  outs_.push({move, source, host_slot, ++pushed_});
}

void CopyQueue::push_in(const Move& move) {
  ins_.push({move, pushed_});
  ++arriving_[static_cast<size_t>(move.slot)];
}

CopyQueue::Out CopyQueue::plan_out() {
  const Out out = outs_.pop();
  plan(out.move);
  return out;
}

void CopyQueue::plan_ins() {
  while (can_arrive() && fits(cost(ins_.front().move), kMostMoves)) {
    const Move move = ins_.pop().move;
    plan(move);
    --arriving_[static_cast<size_t>(move.slot)];
  }
  for_ins_ = 0;
}

void CopyQueue::plan(const Move& move) {
  planned_moves_.push_back(move);
  left_ -= cost(move);
  planned_ += cost(move);
}

void CopyQueue::drop_ins(int32_t slot) {
  ins_.take_if([slot](const In& in) { return in.move.slot == slot; });
  arriving_[static_cast<size_t>(slot)] = 0;
}

void CopyQueue::take_moves(std::vector<Move>& moves) {
  moves.insert(moves.end(), planned_moves_.begin(), planned_moves_.end());
  planned_moves_.clear();
}

}  // namespace godwit::cache
