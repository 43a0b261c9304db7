// godwit plan: what a model would take before anything is loaded, from config.json and tensor headers (design
// §8).
#include <fmt/format.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/json.h"
#include "commands.h"
#include "config/flag_values.h"
#include "engine/ledger.h"
#include "engine/resident.h"
#include "weights/checkpoint.h"

namespace godwit {
namespace {

using engine::Ledger;
using engine::LedgerLine;

// NCCL and the ops' scratch: an estimate until a device has measured it.
constexpr int64_t kDeviceReserve = int64_t{9} << 29;

struct Options {
  std::string model;
  std::string kv = "auto";
  int64_t gpus = 0;
  int64_t ep = 1;
  int64_t speculate = -1;
  uint64_t memory = 0;
  bool json = false;
  engine::LedgerSizes sizes;
};

struct Plan {
  engine::LedgerModel model;
  engine::LedgerRequest request;
  std::unique_ptr<kernels::Ops> ops;  // of the CPU backend; the device's are not in this binary
  bool has_weights = false;
};

bool has_shards(const std::filesystem::path& dir) {
  std::error_code failure;
  return std::filesystem::exists(dir / "model.safetensors.index.json", failure) ||
         std::filesystem::exists(dir / "model.safetensors", failure);
}

Result<Plan> prepare(const Options& o) {
  Plan plan;
  GODWIT_ASSIGN(plan.model.config, read_model_config(o.model));
  plan.model.inventory = make_inventory(plan.model.config);
  plan.model.form = plan.model.config.fp8_blocks ? Form::fp8 : Form::bf16;
  plan.has_weights = has_shards(o.model);
  if (plan.has_weights) {
    GODWIT_ASSIGN(const Checkpoint checkpoint, Checkpoint::open(o.model));
    plan.model.inventory = found_inventory(checkpoint, plan.model.inventory);
    plan.model.form = Form::fp8;
  }
  const bool device = o.gpus > 0;
  engine::LedgerRequest& r = plan.request;
  static_cast<engine::LedgerSizes&>(r) = o.sizes;
  r.memory = static_cast<int64_t>(o.memory);
  r.kv = kernels::cache_format_of(o.kv).value_or(device ? DType::bf16 : DType::f32);
  if (!device) {
    if (o.speculate > 0)
      return make_error(ErrorCode::usage, "--speculate", "the CPU backend does not draft; leave it out");
    plan.ops = kernels::make_cpu_ops(1);
    r.reserve = engine::kRuntimeReserve;
    return plan;
  }
  r.tp = o.gpus;
  r.ep = o.ep;
  r.host_apart = true;
  r.vision = true;
  r.reserve = kDeviceReserve;
  const bool drafts = plan.model.config.text.num_nextn_predict_layers > 0;
  constexpr int64_t kDraftRows = 5;  // NEXTN 5-1-6 (design §10)
  r.draft = o.speculate >= 0 ? o.speculate : drafts ? kDraftRows : 0;
  return plan;
}

std::vector<int64_t> lengths(const Ledger& ledger) {
  std::vector<int64_t> out;
  for (int64_t tokens = 1024; tokens <= ledger.schedule.context; tokens *= 4) out.push_back(tokens);
  if (out.empty() || out.back() != ledger.schedule.context) out.push_back(ledger.schedule.context);
  return out;
}

int64_t running_at(const Ledger& ledger, int64_t tokens) {
  return std::min(ledger.sequences_at(tokens), ledger.schedule.max_sequences);
}

Json as_json(const Plan& plan, const Ledger& ledger, const std::vector<std::string>& changes) {
  JsonArray lines, sequences, adjusted, remedies;
  for (const LedgerLine& l : ledger.lines)
    lines.push_back(Json::object({{"name", l.name},
                                  {"bytes", l.bytes},
                                  {"detail", l.detail},
                                  {"where", l.on_device && plan.request.host_apart ? "device" : "host"}}));
  for (const int64_t tokens : lengths(ledger))
    sequences.push_back(Json::object(
        {{"tokens", tokens}, {"fit", ledger.sequences_at(tokens)}, {"run", running_at(ledger, tokens)}}));
  for (const engine::Adjustment& a : ledger.adjustments)
    adjusted.push_back(Json::object({{"setting", a.setting},
                                     {"requested", a.requested},
                                     {"effective", a.effective},
                                     {"reason", a.reason}}));
  for (const std::string& c : changes) remedies.push_back(c);
  return Json::object({{"ranks", plan.request.tp},
                       {"memory", ledger.memory > 0 ? Json(ledger.memory) : Json()},
                       {"total", ledger.total()},
                       {"fits", ledger.shortfall == 0},
                       {"shortfall", ledger.shortfall},
                       {"remedies", std::move(remedies)},
                       {"context", ledger.schedule.context},
                       {"max_sequences", ledger.schedule.max_sequences},
                       {"prefill_tokens", ledger.schedule.prefill_tokens},
                       {"token_bytes", ledger.token_bytes},
                       {"pages", ledger.model.pages - 1},
                       {"snapshots", ledger.model.snapshots},
                       {"adjusted", std::move(adjusted)},
                       {"ledger", std::move(lines)},
                       {"sequences", std::move(sequences)}});
}

void print_table(const Plan& plan, const Ledger& ledger, const std::vector<std::string>& changes) {
  const bool device = plan.request.host_apart;
  fmt::print("{}, context {}, {} sequences at once, {} prompt rows a step; weights from {}\n\n",
             device ? fmt::format("each of {} GPUs", plan.request.tp) : "CPU", ledger.schedule.context,
             ledger.schedule.max_sequences, ledger.schedule.prefill_tokens,
             plan.has_weights ? "tensor headers" : "config.json");
  for (const LedgerLine& l : ledger.lines)
    fmt::print("  {:<22}{:>18}  {:>12}  {}{}\n", l.name, l.bytes, engine::readable_bytes(l.bytes), l.detail,
               l.on_device ? "" : " (host)");
  fmt::print("  {:<22}{:>18}  {:>12}\n\n", "total", ledger.total(), engine::readable_bytes(ledger.total()));
  fmt::print("a token takes {} B of cache\n", ledger.token_bytes);
  for (const engine::Adjustment& a : ledger.adjustments)
    fmt::print("--{} {} becomes {}: {}\n", a.setting, a.requested, a.effective, a.reason);
  if (ledger.shortfall > 0) {
    fmt::print("does not fit: {} are missing for one sequence of {} tokens\n",
               engine::readable_bytes(ledger.shortfall), ledger.schedule.context);
    for (const std::string& c : changes) fmt::print("  fits with {}\n", c);
    if (changes.empty())
      fmt::print("  no single change of context, sequences, --kv or --gpus makes it fit\n");
    return;
  }
  fmt::print("\n  {:>12}{:>18}{:>10}\n", "tokens", "sequences fit", "run");
  for (const int64_t tokens : lengths(ledger))
    fmt::print("  {:>12}{:>18}{:>10}\n", tokens, ledger.sequences_at(tokens), running_at(ledger, tokens));
}

int run_plan(const Options& options) {
  auto plan = prepare(options);
  if (!plan.ok()) return report_failure(plan.error());
  const auto ledger = engine::make_ledger(plan->model, plan->request, plan->ops.get());
  if (!ledger.ok()) return report_failure(ledger.error());
  std::vector<std::string> changes;
  if (ledger->shortfall > 0) changes = engine::remedies(plan->model, plan->request, plan->ops.get());
  if (options.json) {
    fmt::print("{}\n", dump_json(as_json(*plan, *ledger, changes), {.indent = 2}));
  } else {
    print_table(*plan, *ledger, changes);
  }
  return ledger->shortfall > 0 ? 1 : 0;
}

}  // namespace

void add_plan_command(CLI::App& app, std::function<int()>& run) {
  CLI::App* command = app.add_subcommand(
      "plan", "Show what memory a model takes and how many sequences fit, without loading it");
  auto o = std::make_shared<Options>();
  const auto count = [](int64_t low) { return whole_number(low, 1'000'000'000); };
  command->add_option("--model", o->model, "Directory with config.json; weights may be missing")
      ->type_name("DIR")
      ->required();
  command->add_option("--gpus", o->gpus, "GPUs of one replica; without it the plan is for the CPU")
      ->type_name("N")
      ->transform(whole_number(1, 64));
  command->add_option("--ep", o->ep, "Groups of whole experts among them")
      ->type_name("M")
      ->transform(whole_number(1, 64));
  command
      ->add_option("--gpu-memory", o->memory,
                   "Memory of each (141GB, 80GiB); caches take what the rest leaves")
      ->type_name("SIZE")
      ->transform(byte_size());
  command->add_option("--context", o->sizes.context, "Tokens of prompt and answer")
      ->type_name("N")
      ->transform(count(64));
  command->add_option("--max-sequences", o->sizes.max_sequences, "Requests that run at once")
      ->type_name("N")
      ->capture_default_str()
      ->transform(whole_number(1, 65536));
  command->add_option("--prefill-tokens", o->sizes.prefill_tokens, "Prompt tokens one step may carry")
      ->type_name("N")
      ->capture_default_str()
      ->transform(count(64));
  command
      ->add_option("--kv", o->kv,
                   "Cache precision: f32, bf16 or fp8; auto is f32 on the CPU and bf16 on GPUs")
      ->type_name("T")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "f32", "bf16", "fp8"}).description(""));
  command->add_option("--speculate", o->speculate, "Draft rows; default on GPUs: 5 if there is a draft block")
      ->type_name("K")
      ->transform(whole_number(0, 16));
  command->add_flag("--json", o->json, "Print JSON");
  command->callback([o, &run] { run = [o] { return run_plan(*o); }; });
}

}  // namespace godwit
