#include <algorithm>
#include <cmath>

#include "base/fault.h"
#include "selftest/capture.h"
#include "selftest/golden.h"
#include "selftest/golden_data.h"

namespace godwit::selftest {
namespace {

using kernels::RowKind;

constexpr int64_t kSlice = 256;  // of the prompts, a multiple of 64
constexpr int32_t kDrafts = 5;

struct Drafted {
  std::vector<int32_t> ids;
  std::vector<float> first_logits;
  std::vector<float> hidden;  // [drafts, D]
};

// A prompt and the first token behind it, then drafts: the draft layer meets every slice right behind its
// step.
Drafted draft(Rig& rig, const std::vector<int32_t>& prompt) {
  Capture capture;
  rig.model().observe(&capture);
  Drafted out;
  const auto keep = [&](const std::vector<sample::Sampled>& drawn) {
    if (drawn.empty()) return;
    out.ids.push_back(drawn[0].id);
    if (out.first_logits.empty()) out.first_logits = capture.logits;
    out.hidden.insert(out.hidden.end(), capture.hidden.begin(), capture.hidden.end());
  };
  const auto length = static_cast<int64_t>(prompt.size());
  std::vector<int32_t> next(prompt.begin() + 1, prompt.end());
  next.push_back(kernels::kFromSlot);
  for (int64_t at = 0; at < length; at += kSlice) {
    const auto from = static_cast<size_t>(at);
    const auto n = static_cast<size_t>(std::min(kSlice, length - at));
    const int32_t sampled = at + kSlice < length ? 0 : 1;
    const Rig::Rows rows{1, RowKind::prefill, at, std::span(prompt).subspan(from, n), sampled};
    const Rig::Rows pairs{1, RowKind::prefill, at, std::span(next).subspan(from, n), sampled};
    rig.step({&rows, 1});
    keep(rig.draft({&pairs, 1}, 0));
  }
  for (int32_t ahead = 1; ahead < kDrafts; ++ahead) {
    const int32_t newest = kernels::kFromSlot;
    const Rig::Rows row{1, RowKind::draft, length - 1 + ahead, {&newest, 1}, 1};
    keep(rig.draft({&row, 1}, ahead));
  }
  rig.model().observe(nullptr);
  return out;
}

double max_abs(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return INFINITY;
  double worst = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    const double d = std::fabs(static_cast<double>(a[i]) - b[i]);
    if (!(d <= worst)) worst = d;
  }
  return worst;
}

// Zero: not judged.
struct Limits {
  double logits = 0, hidden = 0;
  double gap = 0;  // of the ids compared
};

Limits limits_of(const Json& manifest, const Json& prompt, GoldenKind kind) {
  const auto tolerance = [&](std::string_view which, std::string_view what) {
    return GoldenData::number(manifest, {"tolerances", which, what});
  };
  if (kind == GoldenKind::float32) {
    const double logits = tolerance("float32_engine", "logits_max_abs");
    return {logits, tolerance("float32_engine", "mtp_hidden_max_abs"), 2 * logits};
  }
  if (kind == GoldenKind::dequantised) {
    const double logits = tolerance("float32_engine_with_dequantised_weights", "logits_max_abs");
    return {logits, 0, 2 * logits};
  }
  // How far the reference itself strays with quantised activations is known of the model's logits, not of the
  // draft layer's: those are reported, and the ids are compared.
  return {0, 0,
          4 * GoldenData::number(prompt, {"spread", "fp8_activations_vs_float32", "logits_last_max_abs"})};
}

void compare(const Drafted& got, const GoldenData& data, const Json& prompt, const Limits& limits,
             Report& report) {
  const std::string name = prompt.find("name")->as_string();
  const auto judge = [&](const char* what, double worst, double limit) {
    report.note("{}: {} differ by at most {:.3g}", name, what, worst);
    if (limit > 0)
      report.check(worst <= limit, "{}: {} differ by {:.3g} (limit {:.3g})", name, what, worst, limit);
  };
  judge("logits of draft 1", max_abs(got.first_logits, data.floats(name + ".mtp_draft1_logits")),
        limits.logits);
  if (limits.hidden > 0)
    judge("hidden rows of the drafts", max_abs(got.hidden, data.floats(name + ".mtp_hidden")), limits.hidden);
  // From the first gap on that the tolerance could close, another id is no error.
  const std::vector<int32_t> ids = data.ints(name + ".mtp_draft_ids");
  const JsonArray& gaps = prompt.find("mtp")->find("draft_gap")->as_array();
  report.check(ids.size() == got.ids.size(), "{}: {} drafts instead of {}", name, got.ids.size(), ids.size());
  size_t compared = 0;
  for (; compared < std::min(ids.size(), got.ids.size()) && gaps[compared].as_double() >= limits.gap;
       ++compared)
    report.check(got.ids[compared] == ids[compared], "{}: draft {} is {} instead of {}", name, compared + 1,
                 got.ids[compared], ids[compared]);
  report.note("{}: {} of {} drafts compared", name, compared, ids.size());
}

}  // namespace

Result<Report> run_golden_drafts(const std::filesystem::path& model_dir,
                                 const std::filesystem::path& data_dir, std::string_view name,
                                 GoldenKind kind, const RigOptions& options) {
  GODWIT_ASSIGN(const GoldenData data, GoldenData::open(data_dir, name));
  RigOptions with = options;
  with.drafts = kDrafts;
  GODWIT_ASSIGN(const std::unique_ptr<Rig> rig, Rig::open(model_dir, with));
  Report report;
  for (const Json& prompt : data.manifest().find("prompts")->as_array()) {
    const std::string prompt_name = prompt.find("name")->as_string();
    const std::vector<int32_t> ids = data.ints(prompt_name + ".input_ids");
    const Limits limits = limits_of(data.manifest(), prompt, kind);
    compare(draft(*rig, ids), data, prompt, limits, report);
    if (kind != GoldenKind::float32) continue;
    for (const std::string_view mutant : {"mutant.draft_halves", "mutant.draft_first", "mutant.draft_list"}) {
      const bool first = mutant == "mutant.draft_first";
      // What attends to a selection may well have left position 0 out.
      if (first && static_cast<int64_t>(ids.size()) > rig->config().text.index_topk) continue;
      Report broken;
      fault::arm(mutant, 0, first ? 1 : -1);
      compare(draft(*rig, ids), data, prompt, limits, broken);
      fault::disarm_all();
      report.check(!broken.failures.empty(), "{}: {} goes unnoticed", prompt_name, mutant);
    }
  }
  return report;
}

}  // namespace godwit::selftest
