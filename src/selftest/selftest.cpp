#include "selftest/selftest.h"

#include "selftest/dequantise.h"
#include "selftest/gates.h"
#include "selftest/golden.h"

namespace godwit::selftest {
namespace {

std::filesystem::path find_model(const Paths& paths, const std::string& name) {
  return name.ends_with("-fp8") ? paths.twins / name : paths.models / name;
}

std::string golden_of(std::string model) {
  for (char& c : model)
    if (c == '-') c = '_';
  return model;  // tiny-glm5next-fp8 -> tiny_glm5next_fp8
}

Check golden(const std::string& model, GoldenKind kind, const std::string& what) {
  return {"golden." + model, what, [model, kind](const Paths& paths, const RigOptions& options) {
            return run_golden(find_model(paths, model), paths.goldens, golden_of(model), kind, options);
          }};
}

Check drafts(const std::string& model, GoldenKind kind) {
  return {"golden." + model + ".drafts", "five drafts of the NextN block behind each prompt",
          [model, kind](const Paths& paths, const RigOptions& options) {
            return run_golden_drafts(find_model(paths, model), paths.goldens, golden_of(model), kind,
                                     options);
          }};
}

Check dequantised(const std::string& model, bool drafted) {
  return {"golden." + model + ".dequantised" + (drafted ? ".drafts" : ""),
          "FP8 weights widened first, against the float32 tolerances",
          [model, drafted](const Paths& paths, const RigOptions& options) -> Result<Report> {
            const auto wide = paths.scratch / (model + (drafted ? "-dequantised-drafts" : "-dequantised"));
            GODWIT_TRY(write_dequantised(find_model(paths, model), wide));
            const auto run = drafted ? run_golden_drafts : run_golden;
            auto report = run(wide, paths.goldens, golden_of(model), GoldenKind::dequantised, options);
            std::error_code ignored;
            std::filesystem::remove_all(wide, ignored);
            return report;
          }};
}

Check rows(const std::string& model) {
  return {"golden." + model + ".rows", "FP8 weights read back exactly",
          [model](const Paths& paths, const RigOptions&) {
            return run_dequantised_rows(find_model(paths, model), paths.goldens, golden_of(model));
          }};
}

using Gate = Result<Report> (*)(const std::filesystem::path&, const RigOptions&);

void add_gate(std::vector<Check>& out, const std::string& name, Gate gate, const std::string& what,
              bool drafts = false) {
  for (const char* model : {"random-glm5next", "tiny-glm5next", "tiny-glm5next-fp8"}) {
    if (drafts && std::string_view(model) == "random-glm5next") continue;  // its draft block lacks a matrix
    out.push_back({"gate." + name + "." + model, what,
                   [gate, m = std::string(model)](const Paths& paths, const RigOptions& options) {
                     return gate(find_model(paths, m), options);
                   }});
  }
}

// A check with fp8 caches; it fails when they are not what it ran on.
Check on_fp8_caches(const Check& check, const std::string& model) {
  Check out = check;
  out.name += ".kv-fp8";
  out.what += ", fp8 caches";
  out.cache = DType::f8_e4m3;
  out.run = [run = check.run, model](const Paths& paths, RigOptions options) -> Result<Report> {
    options.cache = DType::f8_e4m3;
    GODWIT_ASSIGN(Report report, run(paths, options));
    GODWIT_TRY(check_cache_is_used(find_model(paths, model), options, report));
    return report;
  };
  return out;
}

std::vector<Check> make_checks() {
  std::vector<Check> out;
  for (const char* model : {"random-glm5next", "tiny-glm5next"}) {
    const std::string twin = std::string(model) + "-fp8";
    out.push_back(
        golden(model, GoldenKind::float32, "layers, choices, logits and greedy ids of the reference class"));
    out.push_back(golden(twin, GoldenKind::fp8_activations, "FP8 weights with quantised activations"));
    out.push_back(dequantised(twin, false));
    out.push_back(rows(twin));
  }
  out.push_back(drafts("tiny-glm5next", GoldenKind::float32));
  out.push_back(drafts("tiny-glm5next-fp8", GoldenKind::fp8_activations));
  out.push_back(dequantised("tiny-glm5next-fp8", true));
  add_gate(out, "chunked", gate_chunked, "any prefill slicing gives the same bits");
  add_gate(out, "batched", gate_batched, "company in a step changes no bit");
  add_gate(out, "forced", gate_forced, "forced rows give the bits of decoding");
  add_gate(out, "drafted", gate_drafted, "company, slices and rejected rows change no draft", true);
  const size_t on_any_backend = out.size();
  add_gate(out, "cached", gate_cached, "a prefix hit gives the bits of a cold run");
  add_gate(out, "restored", gate_restored,
           "state that went through the host tier gives the bits of state that stayed");
  add_gate(out, "resumed", gate_resumed,
           "a request recomputed or resumed gives the tokens of an unbroken one");
  for (size_t i = on_any_backend; i < out.size(); ++i) out[i].engine = true;
  const std::string model = "tiny-glm5next";
  const size_t on_f32_caches = out.size();
  for (size_t i = 0; i < on_f32_caches; ++i)
    if (out[i].name.starts_with("gate.") && out[i].name.ends_with("." + model))
      out.push_back(on_fp8_caches(out[i], model));
  out.push_back(on_fp8_caches(golden(model, GoldenKind::fp8_cache, "logits and greedy ids"), model));
  return out;
}

}  // namespace

const std::vector<Check>& all_checks() {
  static const std::vector<Check> checks = make_checks();
  return checks;
}

}  // namespace godwit::selftest
