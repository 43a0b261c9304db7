#include "selftest/gates.h"

#include <random>

#include "selftest/capture.h"
#include "selftest/row_logits.h"

namespace godwit::selftest {
namespace {

using kernels::RowKind;

constexpr int64_t kPrompt = 707;  // many grid chunks, an odd end, past both small models' dense limits
constexpr int64_t kDecoded = 13;

std::vector<int32_t> random_ids(const ModelConfig& config, int64_t count, uint32_t seed) {
  // Ids of the plain vocabulary: both small models keep their control ids at the end of it.
  std::mt19937 random(seed);
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint32_t>(config.text.vocab_size));
  return ids;
}

void prefill(Rig& rig, int32_t slot, const std::vector<int32_t>& ids, std::span<const int64_t> edges) {
  for (size_t i = 0; i + 1 < edges.size(); ++i) {
    const Rig::Rows rows{slot, RowKind::prefill, edges[i], part(ids, edges[i], edges[i + 1] - edges[i]),
                         i + 2 == edges.size() ? 1 : 0};
    rig.step({&rows, 1});
  }
}

std::vector<float> decode(Rig& rig, RowLogits& logits, int32_t slot, const std::vector<int32_t>& ids,
                          int64_t first) {
  for (int64_t at = first; at < static_cast<int64_t>(ids.size()); ++at) {
    const Rig::Rows rows{slot, RowKind::decode, at, part(ids, at, 1), 1};
    rig.step({&rows, 1});
  }
  return logits.rows.back();
}

}  // namespace

Result<void> check_cache_is_used(const std::filesystem::path& model_dir, const RigOptions& options,
                                 Report& report) {
  std::vector<std::vector<float>> seen;
  for (const DType format : {DType::f32, options.cache}) {
    RigOptions with = options;
    with.cache = format;
    GODWIT_ASSIGN(const std::unique_ptr<Rig> rig, Rig::open(model_dir, with));
    RowLogits logits(*rig);
    const std::vector<int32_t> ids = random_ids(rig->config(), 331, 7);
    prefill(*rig, 1, std::vector<int32_t>(ids.begin(), ids.end() - 1), std::vector<int64_t>{0, 330});
    seen.push_back(logits.rows.back());
    seen.push_back(decode(*rig, logits, 1, ids, 330));
  }
  report.check(!same_bits(seen[0], seen[2]), "the cache format changes no logit of a prompt");
  report.check(!same_bits(seen[1], seen[3]), "the cache format changes no logit of a decode row");
  return {};
}

Result<Report> gate_chunked(const std::filesystem::path& model_dir, const RigOptions& options) {
  GODWIT_ASSIGN(const std::unique_ptr<Rig> rig, Rig::open(model_dir, options));
  RowLogits logits(*rig);
  Report report;
  const std::vector<int32_t> ids = random_ids(rig->config(), kPrompt + kDecoded, 1);
  const std::vector<std::vector<int64_t>> slicings = {
      {0, 448, kPrompt},
      {0, 64, 128, 192, 256, 320, 384, 448, 512, 576, 640, 704, kPrompt},
      {0, 128, 448, 512, kPrompt},
      {0, 256, 704, kPrompt},
  };
  std::vector<float> first_prompt, first_decode;
  for (const auto& edges : slicings) {
    prefill(*rig, 1, std::vector<int32_t>(ids.begin(), ids.begin() + kPrompt), edges);
    const std::vector<float> prompt = logits.rows.back();
    const std::vector<float> decoded = decode(*rig, logits, 1, ids, kPrompt);
    if (first_prompt.empty()) {
      first_prompt = prompt;
      first_decode = decoded;
      continue;
    }
    report.check(same_bits(prompt, first_prompt), "{} slices change the prompt's logits", edges.size() - 1);
    report.check(same_bits(decoded, first_decode), "{} slices change the logits {} decode rows later",
                 edges.size() - 1, kDecoded);
  }
  // The gate must notice a slice that does not go on from what the one before it left: one token is another
  // one.
  std::vector<int32_t> other = ids;
  other[447] = (other[447] + 1) % static_cast<int32_t>(rig->config().text.vocab_size);
  prefill(*rig, 1, other, std::vector<int64_t>{0, 448});
  const Rig::Rows rest{1, RowKind::prefill, 448, part(ids, 448, kPrompt - 448), 1};
  rig->step({&rest, 1});
  report.check(!same_bits(logits.rows.back(), first_prompt), "a wrong token before a slice goes unnoticed");
  return report;
}

Result<Report> gate_batched(const std::filesystem::path& model_dir, const RigOptions& options) {
  GODWIT_ASSIGN(const std::unique_ptr<Rig> rig, Rig::open(model_dir, options));
  RowLogits logits(*rig);
  Report report;
  const std::vector<int32_t> a = random_ids(rig->config(), 200, 2);
  const std::vector<int32_t> b = random_ids(rig->config(), 330, 3);
  const std::vector<int32_t> c = random_ids(rig->config(), 129, 4);

  // Alone: a's prompt of 192 + its decode rows; b's prompt; c's.
  std::vector<std::vector<float>> alone;
  const std::vector<int64_t> whole_a = {0, 192}, whole_c = {0, 129};
  prefill(*rig, 1, a, whole_a);
  alone.push_back(logits.rows.back());
  for (int64_t at = 192; at < 196; ++at)
    alone.push_back(decode(*rig, logits, 1, {a.begin(), a.begin() + at + 1}, at));
  prefill(*rig, 1, b, std::vector<int64_t>{0, 192, 330});
  const std::vector<float> alone_b = logits.rows.back();
  prefill(*rig, 1, c, whole_c);
  const std::vector<float> alone_c = logits.rows.back();

  // Together: a decodes in slot 2 while b prefills in slices in slot 3, then c joins in slot 1.
  prefill(*rig, 2, a, whole_a);
  report.check(same_bits(logits.rows.back(), alone[0]), "another slot changes the prompt's logits");
  const auto step = [&](std::vector<Rig::Rows> rows) { rig->step(rows); };
  step({{2, RowKind::decode, 192, part(a, 192, 1), 1}, {3, RowKind::prefill, 0, part(b, 0, 192), 0}});
  report.check(same_bits(logits.rows[0], alone[1]), "a prefill slice in the step changes a decode row");
  step({{2, RowKind::decode, 193, part(a, 193, 1), 1},
        {3, RowKind::prefill, 192, part(b, 192, 138), 1},
        {1, RowKind::prefill, 0, part(c, 0, 129), 1}});
  report.check(logits.rows.size() == 3, "expected three sampled rows, found {}", logits.rows.size());
  report.check(same_bits(logits.rows[0], alone[2]), "two prefill slices in the step change a decode row");
  report.check(same_bits(logits.rows[1], alone_b), "company changes the logits of a sliced prompt");
  report.check(same_bits(logits.rows[2], alone_c), "company changes the logits of a whole prompt");
  // Three decode rows in one step, a forced pair among them.
  step({{2, RowKind::forced, 194, part(a, 194, 2), 1},
        {3, RowKind::decode, 330, part(b, 0, 1), 1},
        {1, RowKind::decode, 129, part(c, 0, 1), 1}});
  report.check(same_bits(logits.rows[0], alone[4]), "decode rows of others change a forced row");

  // The gate must notice a neighbour that writes where it should not: a runs again, and c takes its slot.
  prefill(*rig, 2, a, whole_a);
  step({{3, RowKind::decode, 331, part(b, 1, 1), 1}, {2, RowKind::prefill, 0, part(c, 0, 64), 0}});
  step({{2, RowKind::decode, 192, part(a, 192, 1), 1}, {1, RowKind::decode, 130, part(c, 1, 1), 1}});
  report.check(!same_bits(logits.rows[0], alone[1]), "a neighbour in the same slot goes unnoticed");
  return report;
}

Result<Report> gate_forced(const std::filesystem::path& model_dir, const RigOptions& options) {
  GODWIT_ASSIGN(const std::unique_ptr<Rig> rig, Rig::open(model_dir, options));
  RowLogits logits(*rig);
  Report report;
  const int64_t prompt = 130;
  const std::vector<int32_t> ids = random_ids(rig->config(), prompt + 70, 5);
  const std::vector<int64_t> whole = {0, prompt};
  prefill(*rig, 1, ids, whole);
  const std::vector<float> want = decode(*rig, logits, 1, ids, prompt);
  for (const int64_t burst : {2, 5, 64, 70}) {
    prefill(*rig, 2, ids, whole);
    for (int64_t at = prompt; at < prompt + 70; at += burst) {
      const int64_t n = std::min(burst, prompt + 70 - at);
      const Rig::Rows rows{2, RowKind::forced, at, part(ids, at, n), 1};
      rig->step({&rows, 1});
    }
    report.check(same_bits(logits.rows.back(), want), "forced rows in bursts of {} change the logits", burst);
  }
  // The gate must notice a state that is off by one token.
  prefill(*rig, 2, ids, whole);
  const Rig::Rows short_of_one{2, RowKind::forced, prompt, part(ids, prompt, 30), 0};
  const Rig::Rows after_it{2, RowKind::forced, prompt + 30, part(ids, prompt + 31, 39), 1};
  rig->step({&short_of_one, 1});
  rig->step({&after_it, 1});
  report.check(!same_bits(logits.rows.back(), want), "a forced token that is lacking goes unnoticed");
  return report;
}

}  // namespace godwit::selftest
