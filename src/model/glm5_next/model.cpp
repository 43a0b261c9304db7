#include "model/glm5_next/model.h"

#include "model/glm5_next/dims.h"

namespace godwit::model {

ModelBytes price(const TextConfig& text, const ShardPlan& plan, const ModelOptions& options,
                 const kernels::Ops& ops) {
  const kernels::Dims dims = rank_dims(text, plan);
  const StateLayout layout = plan_state(text, dims, options.limits, options.kv_dtype);
  ModelBytes bytes;
  bytes.pages = options.pages * layout.page_bytes;
  bytes.slots = options.slots * (layout.slot_bytes + token_bytes(dims, options.limits));
  bytes.snapshots = options.snapshots * layout.committed_bytes;
  bytes.workspace =
      plan_workspace(dims, text.q_lora_rank, options.limits, ops.activations(dims), nullptr).bytes;
  for (const kernels::ScratchEntry& e : ops.scratch(op_dims(dims, options.limits), options.limits))
    bytes.scratch += e.bytes;
  return bytes;
}

Model::Model(const ModelConfig& config, kernels::Ops& ops, comm::Comm& comm, const ModelOptions& options)
    : text_(config.text),
      ops_(ops),
      comm_(comm),
      options_(options),
      arena_(ops.memory()),
      step_arrays_(arena_, options.limits) {}

Result<std::unique_ptr<Model>> Model::load(const Checkpoint& checkpoint, const ModelConfig& config,
                                           const ShardPlan& plan, kernels::Ops& ops, comm::Comm& comm,
                                           const ModelOptions& options, const ReadOptions& reads) {
  GODWIT_ASSIGN(std::unique_ptr<ModelWeights> weights,
                bind_weights(checkpoint, config, plan, comm.rank(), ops.memory(),
                             drafts(options.limits) && config.text.num_nextn_predict_layers > 0, reads));
  return assemble(std::move(weights), config, plan, ops, comm, options);
}

Result<std::unique_ptr<Model>> Model::assemble(std::shared_ptr<const ModelWeights> weights,
                                               const ModelConfig& config, const ShardPlan& plan,
                                               kernels::Ops& ops, comm::Comm& comm,
                                               const ModelOptions& options) {
  std::unique_ptr<Model> m(new Model(config, ops, comm, options));
  m->dims_ = rank_dims(config.text, plan);
  m->weights_ = std::move(weights);
  GODWIT_TRY(ops.prepare(op_dims(m->dims_, options.limits), options.limits));
  m->state_ = std::make_unique<RankState>(
      ops.memory(), plan_state(config.text, m->dims_, options.limits, options.kv_dtype), m->dims_,
      options.kv_dtype, options.pages, options.slots, options.snapshots);
  m->host_ = std::make_unique<HostPool>(ops.memory(), m->state_->layout(), options.host);
  m->damaged_.reserve(static_cast<size_t>(options.slots));
  const auto plan_at = [&](std::byte* base) {
    return plan_workspace(m->dims_, config.text.q_lora_rank, options.limits, ops.activations(m->dims_), base);
  };
  m->ws_ = plan_at(m->arena_.take(plan_at(nullptr).bytes));
  m->history_tokens_ = m->arena_.in_place() ? nullptr : m->arena_.take_array<int32_t>(options.limits.context);
  if (drafts(options.limits)) m->drafted_ = m->arena_.take_array<int32_t>(options.slots);
  m->sampled_ = m->arena_.take_array<sample::Sampled>(options.limits.logits_rows());
  if (!m->arena_.in_place())
    m->masks_ = m->arena_.take_array<uint32_t>(options.limits.sampled_rows * m->mask_bytes() / 4);
  m->set_vocabulary(std::vector<bool>(static_cast<size_t>(m->dims_.vocab), true), {});
  return m;
}

void Model::set_vocabulary(const std::vector<bool>& has_token, const std::vector<int32_t>& stop_ids) {
  banned_words_.assign(static_cast<size_t>((dims_.vocab + 31) / 32), 0u);
  for (int64_t id = 0; id < dims_.vocab; ++id) {
    const bool known = id < static_cast<int64_t>(has_token.size()) && has_token[static_cast<size_t>(id)];
    if (!known) banned_words_[static_cast<size_t>(id / 32)] |= 1u << (id % 32);
  }
  stop_words_ = stop_ids;
  banned_ = arena_.place_array(banned_words_.data(), static_cast<int64_t>(banned_words_.size()));
  stop_ids_ = arena_.place_array(stop_words_.data(), static_cast<int64_t>(stop_words_.size()));
}

void Model::start_history(int32_t slot, const std::vector<int32_t>& tokens, int64_t prompt) {
  const auto length = static_cast<int64_t>(tokens.size());
  const int32_t* placed = tokens.data();
  if (history_tokens_) {
    GODWIT_ASSERT(length <= options_.limits.context);
    ops_.memory().upload(history_tokens_, tokens.data(), length * static_cast<int64_t>(sizeof(int32_t)));
    placed = history_tokens_;
  }
  ops_.history_start({state_->history(), slot, placed, prompt, length});
}

View Model::on_host(const View& v, Buffer& mirror) const {
  if (arena_.in_place()) return v;
  const int64_t bytes = v.rows * v.stride * size_of(v.dtype);
  if (static_cast<int64_t>(mirror.bytes()) < bytes) mirror = Buffer(static_cast<size_t>(bytes));
  ops_.memory().download(mirror.data(), v.data, bytes);
  return {mirror.data(), v.dtype, v.rows, v.cols, v.stride};
}

}  // namespace godwit::model
