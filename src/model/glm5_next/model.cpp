#include "model/glm5_next/model.h"

#include "model/glm5_next/dims.h"

namespace godwit::model {

ModelBytes price(const TextConfig& text, const ShardPlan& plan, const ModelOptions& options,
                 const kernels::Ops& ops) {
  const kernels::Dims dims = rank_dims(text, plan);
  const StateLayout layout = plan_state(text, dims, options.limits, options.kv_dtype);
  ModelBytes bytes;
  bytes.pages = options.pages * layout.page_bytes;
  bytes.slots =
      options.slots * (layout.slot_bytes + (dims.vocab + 1) * 4);  // with token history and last token
  bytes.snapshots = options.snapshots * layout.committed_bytes;
  bytes.workspace = plan_workspace(dims, text.q_lora_rank, options.limits, nullptr).bytes;
  for (const kernels::ScratchEntry& e : ops.scratch(dims, options.limits)) bytes.scratch += e.bytes;
  return bytes;
}

Model::Model(const ModelConfig& config, kernels::Ops& ops, comm::Comm& comm, const ModelOptions& options)
    : text_(config.text), ops_(ops), comm_(comm), options_(options) {}

Result<std::unique_ptr<Model>> Model::load(const Checkpoint& checkpoint, const ModelConfig& config,
                                           const ShardPlan& plan, kernels::Ops& ops, comm::Comm& comm,
                                           const ModelOptions& options) {
  std::unique_ptr<Model> m(new Model(config, ops, comm, options));
  m->dims_ = rank_dims(config.text, plan);
  GODWIT_ASSIGN(m->weights_, bind_weights(checkpoint, config, plan, comm.rank()));
  GODWIT_TRY(ops.prepare(m->dims_, options.limits));
  m->state_ = std::make_unique<RankState>(
      ops.memory(), plan_state(config.text, m->dims_, options.limits, options.kv_dtype), m->dims_,
      options.kv_dtype, options.pages, options.slots, options.snapshots);
  m->host_ = std::make_unique<HostPool>(ops.memory(), m->state_->layout(), options.host);
  m->damaged_.reserve(static_cast<size_t>(options.slots));
  const int64_t bytes = plan_workspace(m->dims_, config.text.q_lora_rank, options.limits, nullptr).bytes;
  m->workspace_ = Buffer(static_cast<size_t>(bytes));
  m->ws_ = plan_workspace(m->dims_, config.text.q_lora_rank, options.limits, m->workspace_.as<std::byte>());

  m->sequences_.reserve(static_cast<size_t>(options.limits.sequences));
  m->row_sequence_.reserve(static_cast<size_t>(options.limits.rows));
  m->sampled_rows_.reserve(static_cast<size_t>(options.limits.sampled_rows));
  m->banned_.assign(static_cast<size_t>((m->dims_.vocab + 31) / 32), 0u);
  return m;
}

void Model::set_vocabulary(const std::vector<bool>& has_token, const std::vector<int32_t>& stop_ids) {
  for (int64_t id = 0; id < dims_.vocab; ++id) {
    const bool known = id < static_cast<int64_t>(has_token.size()) && has_token[static_cast<size_t>(id)];
    if (!known) banned_[static_cast<size_t>(id / 32)] |= 1u << (id % 32);
  }
  stop_ids_ = stop_ids;
}

void Model::start_history(int32_t slot, const std::vector<int32_t>& tokens, int64_t prompt) {
  ops_.history_start({state_->history(), slot, tokens.data(), prompt, static_cast<int64_t>(tokens.size())});
}

}  // namespace godwit::model
