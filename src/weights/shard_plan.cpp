#include "weights/shard_plan.h"

#include "tensor/tensor.h"

namespace godwit {
namespace {

// The rank's share of `extent` things; sizes differ by at most one.
Range share(int64_t extent, int64_t ranks, int64_t rank) {
  return {extent * rank / ranks, extent * (rank + 1) / ranks};
}

Result<void> require_divides(std::string_view flag, int64_t ranks, std::string_view what, int64_t extent) {
  if (extent % ranks == 0) return {};
  return make_error(ErrorCode::usage, std::string(flag), "{} {} does not divide the {} {} of this model",
                    flag, ranks, extent, what);
}

// Whether local block i/128 of the range is block (begin+i)/128 of the tensor for every i, from one first
// block on.
bool keeps_blocks(const Range& range) {
  if (range.begin % kFp8Block == 0) return true;
  return range.begin / kFp8Block == (range.end - 1) / kFp8Block;
}

}  // namespace

Result<ShardPlan> ShardPlan::make(const TextConfig& text, int64_t tp, int64_t ep) {
  constexpr int64_t kMostRanks = 64;
  if (tp < 1 || tp > kMostRanks) {
    return make_error(ErrorCode::usage, "--tp", "--tp is {}; supported: 1 to {}", tp, kMostRanks);
  }
  if (ep < 1 || tp % ep != 0) {
    return make_error(ErrorCode::usage, "--ep", "--ep is {}; supported: a divisor of --tp ({})", ep, tp);
  }
  GODWIT_TRY(require_divides("--tp", tp, "attention heads", text.num_attention_heads));
  GODWIT_TRY(require_divides("--tp", tp, "KDA heads", text.linear_num_heads));
  GODWIT_TRY(require_divides("--tp", tp, "columns of the dense MLP", text.intermediate_size));
  GODWIT_TRY(require_divides("--tp", tp, "columns of the shared expert", text.shared_intermediate_size()));
  GODWIT_TRY(require_divides("--ep", ep, "routed experts", text.n_routed_experts));
  GODWIT_TRY(
      require_divides("--tp / --ep =", tp / ep, "columns of a routed expert", text.moe_intermediate_size));
  ShardPlan plan;
  plan.tp_ = tp;
  plan.ep_ = ep;
  plan.vocab_size_ = text.vocab_size;
  plan.routed_experts_ = text.n_routed_experts;
  return plan;
}

Range ShardPlan::vocabulary(int64_t rank) const {
  return share(vocab_size_, tp_, rank);
}

Range ShardPlan::experts(int64_t rank) const {
  return share(routed_experts_, ep_, rank / expert_ranks());
}

Slice ShardPlan::slice(const TensorSpec& tensor, int64_t rank) const {
  Slice slice{{0, tensor.rows()}, {0, tensor.columns()}};
  int64_t ranks = tp_;
  if (tensor.expert >= 0) {
    const Range present = experts(rank);
    if (tensor.expert < present.begin || tensor.expert >= present.end) return {};
    ranks = expert_ranks();
    rank %= ranks;
  }
  if (tensor.split == Split::rows) slice.rows = share(tensor.rows(), ranks, rank);
  if (tensor.split == Split::columns) slice.columns = share(tensor.columns(), ranks, rank);
  return slice;
}

Result<void> check_fp8_cuts(const ShardPlan& plan, const std::vector<TensorSpec>& inventory) {
  for (const TensorSpec& tensor : inventory) {
    if (tensor.storage != Storage::quantised) continue;
    for (int64_t rank = 0; rank < plan.tp(); ++rank) {
      const Slice slice = plan.slice(tensor, rank);
      if (slice.empty() || (keeps_blocks(slice.rows) && keeps_blocks(slice.columns))) continue;
      return make_error(
          ErrorCode::usage, "--tp",
          "--tp {} --ep {} gives rank {} rows {} to {} and columns {} to {} of {}, which cuts through its "
          "FP8 blocks of {}; use fewer ranks or the BF16 checkpoint",
          plan.tp(), plan.ep(), rank, slice.rows.begin, slice.rows.end, slice.columns.begin,
          slice.columns.end, tensor.name, kFp8Block);
    }
  }
  return {};
}

TotalsTable rank_totals(const ShardPlan& plan, const std::vector<TensorSpec>& inventory, Form form,
                        int64_t rank) {
  TotalsTable table;
  for (const TensorSpec& tensor : inventory) {
    const Slice slice = plan.slice(tensor, rank);
    table.add(tensor, totals_of(tensor.storage, form, slice.rows.size(), slice.columns.size()));
  }
  return table;
}

}  // namespace godwit
