// godwit inspect DIR [--verify]: what a checkpoint is, what it weighs, and what each rank would hold.
#include <fmt/format.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>

#include "commands.h"
#include "config/model_config.h"
#include "weights/checkpoint.h"
#include "weights/finite.h"
#include "weights/inventory.h"
#include "weights/shard_plan.h"
#include "weights/totals.h"

namespace godwit {
namespace {

std::string with_commas(int64_t number) {
  std::string digits = std::to_string(number);
  for (size_t i = digits.size(); i > 3;) digits.insert(i -= 3, ",");
  return digits;
}

std::string sized(int64_t bytes) {
  const double mebibytes = static_cast<double>(bytes) / (1 << 20);
  if (mebibytes < 1024) return fmt::format("{:.2f} MiB", mebibytes);
  return fmt::format("{:.2f} GiB", mebibytes / 1024);
}

void print_config(const ModelConfig& config) {
  const TextConfig& text = config.text;
  int64_t kda = 0, shared = 0, dense = 0;
  for (const LayerConfig& layer : text.layers) {
    kda += layer.attention == LayerAttention::kda;
    shared += layer.attention == LayerAttention::dsa && layer.indexer == LayerIndexer::shared;
    dense += layer.mlp == LayerMlp::dense;
  }
  const int64_t dsa = text.num_hidden_layers - kda;
  fmt::print(
      "layers      {}: {} KDA, {} MLA with sparse attention{}; {} dense, {} with experts; draft layers {}\n",
      text.num_hidden_layers, kda, dsa,
      shared ? fmt::format(" ({} share the selection of the layer before)", shared) : "", dense,
      text.num_hidden_layers - dense, text.num_nextn_predict_layers);
  fmt::print("widths      hidden {} in {} streams, dense {}, vocabulary {}, positions {}\n", text.hidden_size,
             text.hc_mult, text.intermediate_size, text.vocab_size, text.max_position_embeddings);
  fmt::print("KDA         {} heads of {}, convolution of {}\n", text.linear_num_heads, text.linear_head_dim,
             text.linear_conv_kernel_dim);
  fmt::print("MLA         {} heads of {} (values {}), query rank {}, latent {}\n", text.num_attention_heads,
             text.qk_head_dim, text.v_head_dim, text.q_lora_rank, text.kv_lora_rank);
  fmt::print("indexer     {} heads of {}, top {} tokens in pools of {}\n", text.index_n_heads,
             text.index_head_dim, text.index_topk, text.index_kpool);
  fmt::print("experts     {} routed (top {}) and {} shared, {} wide\n", text.n_routed_experts,
             text.num_experts_per_tok, text.n_shared_experts, text.moe_intermediate_size);
  fmt::print("vision      {} layers, {} wide, patches of {}\n", config.vision.depth,
             config.vision.hidden_size, config.vision.patch_size);
  fmt::print("end tokens  {}\n", fmt::join(config.eos_token_ids, ", "));
}

void print_row(std::string_view name, const Totals& totals) {
  if (totals.tensors == 0) return;
  fmt::print("  {:<24}{:>9}{:>20}{:>20}{:>16}\n", name, with_commas(totals.tensors),
             with_commas(totals.parameters), with_commas(totals.bytes()), sized(totals.bytes()));
}

void print_components(const TotalsTable& table) {
  fmt::print("\n  {:<24}{:>9}{:>20}{:>20}\n", "component", "tensors", "parameters", "bytes");
  for (int c = 0; c < kComponentCount; ++c) {
    if (static_cast<Component>(c) == Component::vision) continue;
    print_row(name_of(static_cast<Component>(c)), table.main[static_cast<size_t>(c)]);
  }
  print_row("main model", table.main_total());
  print_row("draft block", table.nextn_total());
  print_row("vision", table.vision_total());
  print_row("all", table.all());
}

// The fullest rank of each split (a vocabulary that does not divide makes ranks differ by a row).
void print_ranks(const ModelConfig& config, const std::vector<TensorSpec>& inventory, Form form) {
  fmt::print("\nweights of the fullest rank, in bytes\n  {:<8}{:>20}{:>18}{:>18}{:>20}\n", "--tp", "main",
             "draft", "vision", "total");
  for (int64_t tp : {1, 2, 4, 8}) {
    Result<ShardPlan> plan = ShardPlan::make(config.text, tp, 1);
    if (!plan.ok()) {
      fmt::print("  {:<8}{}\n", tp, plan.error().message);
      continue;
    }
    if (Result<void> cuts = check_fp8_cuts(*plan, inventory); form == Form::fp8 && !cuts.ok()) {
      fmt::print("  {:<8}{}\n", tp, cuts.error().message);
      continue;
    }
    TotalsTable fullest;
    for (int64_t rank = 0; rank < tp; ++rank) {
      const TotalsTable table = rank_totals(*plan, inventory, form, rank);
      if (table.all().bytes() > fullest.all().bytes()) fullest = table;
    }
    fmt::print("  {:<8}{:>20}{:>18}{:>18}{:>20}   {}\n", tp, with_commas(fullest.main_total().bytes()),
               with_commas(fullest.nextn_total().bytes()), with_commas(fullest.vision_total().bytes()),
               with_commas(fullest.all().bytes()), sized(fullest.all().bytes()));
  }
}

Result<void> verify(const Checkpoint& checkpoint, const std::vector<TensorSpec>& inventory) {
  Result<CheckReport> report = check_checkpoint(checkpoint, inventory, NextnUse::required);
  if (!report.ok()) {
    if (check_checkpoint(checkpoint, inventory, NextnUse::optional).ok()) {
      report.error().message +=
          "\nonly the draft block is incomplete: the model can be served without drafting";
    }
    return report.error();
  }
  GODWIT_TRY(check_scales(checkpoint, inventory));
  for (const auto& [name, tensor] : checkpoint.tensors()) GODWIT_TRY(check_finite(name, tensor));
  fmt::print(
      "\nverified: every tensor is there with the expected shape and dtype, and every value is finite; {} "
      "are "
      "FP8\n",
      with_commas(report->fp8_weights));
  return {};
}

bool has_weights(const std::filesystem::path& dir) {
  std::error_code failure;
  return std::filesystem::exists(dir / "model.safetensors.index.json", failure) ||
         std::filesystem::exists(dir / "model.safetensors", failure);
}

Result<void> inspect(const std::filesystem::path& dir, bool is_verifying) {
  GODWIT_ASSIGN(const ModelConfig config, read_model_config(dir));
  const std::vector<TensorSpec> inventory = make_inventory(config);
  print_config(config);
  if (!is_verifying && !has_weights(dir)) {
    const Form form = config.fp8_blocks ? Form::fp8 : Form::bf16;
    fmt::print("weights     none here: the numbers below follow from config.json ({})\n",
               config.fp8_blocks ? "FP8 form" : "BF16");
    print_components(totals(inventory, form));
    print_ranks(config, inventory, form);
    return {};
  }
  GODWIT_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(dir));
  const std::vector<TensorSpec> found = found_inventory(checkpoint, inventory);
  fmt::print("weights     {} tensors in {} file{}, {} bytes\n",
             with_commas(static_cast<int64_t>(checkpoint.tensors().size())), checkpoint.file_count(),
             checkpoint.file_count() == 1 ? "" : "s",
             with_commas(static_cast<int64_t>(checkpoint.tensor_bytes())));
  print_components(totals(found, Form::fp8));
  print_ranks(config, found, Form::fp8);
  if (is_verifying) GODWIT_TRY(verify(checkpoint, inventory));
  return {};
}

}  // namespace

void add_inspect_command(CLI::App& app, std::function<int()>& run) {
  CLI::App* command = app.add_subcommand("inspect", "Show what a checkpoint is and what its weights need");
  struct Options {
    std::string dir;
    bool is_verifying = false;
  };
  auto options = std::make_shared<Options>();
  command->add_option("DIR", options->dir, "Model directory with config.json")->type_name("DIR")->required();
  command->add_flag(
      "--verify", options->is_verifying,
      "Check every tensor's presence, shape and dtype against config.json, and that all its values are "
      "finite: reads all files");
  command->callback([options, &run] {
    run = [options] {
      const Result<void> done = inspect(options->dir, options->is_verifying);
      return done.ok() ? 0 : report_failure(done.error());
    };
  });
}

}  // namespace godwit
