#include <algorithm>
#include <random>

#include "selftest/gates.h"
#include "selftest/row_logits.h"

namespace godwit::selftest {
namespace {

using kernels::RowKind;

constexpr int64_t kPrompt = 330;  // past the small models' dense limit
constexpr int32_t kDrafts = 5;

using Drafts = std::vector<std::vector<float>>;  // logits of each

bool same_bits(const Drafts& a, const Drafts& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const auto& x, const auto& y) { return selftest::same_bits(x, y); });
}

// Ids with one behind the last position, and the slot they run in.
struct Stream {
  int32_t slot = 1;
  std::vector<int32_t> ids;  // [kPrompt + …]
};

class Drafting {
 public:
  explicit Drafting(Rig& rig) : rig_(rig), logits_(rig) {}

  // Rows [first, first + count) of every stream in one step, then their pairs; `anchored`: the last pair
  // drafts.
  void advance(const std::vector<Stream>& streams, RowKind kind, int64_t first, int64_t count,
               bool anchored) {
    compute(streams, kind, first, count);
    pair(streams, kind, first, count, anchored);
  }
  void compute(const std::vector<Stream>& streams, RowKind kind, int64_t first, int64_t count) {
    rig_.step(rows_of(streams, kind, first, count, 0, 0));
  }
  void pair(const std::vector<Stream>& streams, RowKind kind, int64_t first, int64_t count, bool anchored) {
    rig_.draft(rows_of(streams, kind, first, count, 1, anchored ? 1 : 0), 0);
    drafts_.assign(streams.size(), {});
    if (anchored) keep();
  }
  // The drafts behind position `last`, by stream.
  std::vector<Drafts> rest(const std::vector<Stream>& streams, int64_t last) {
    for (int32_t ahead = 1; ahead < kDrafts; ++ahead) {
      const int32_t newest = kernels::kFromSlot;
      std::vector<Rig::Rows> rows;
      rows.reserve(streams.size());
      for (const Stream& s : streams) rows.push_back({s.slot, RowKind::draft, last + ahead, {&newest, 1}, 1});
      rig_.draft(rows, ahead);
      keep();
    }
    return drafts_;
  }

 private:
  static std::vector<Rig::Rows> rows_of(const std::vector<Stream>& streams, RowKind kind, int64_t first,
                                        int64_t count, int64_t shift, int32_t sampled) {
    std::vector<Rig::Rows> rows;
    rows.reserve(streams.size());
    for (const Stream& s : streams)
      rows.push_back({s.slot, kind, first, part(s.ids, first + shift, count), sampled});
    return rows;
  }
  void keep() {
    for (size_t i = 0; i < drafts_.size(); ++i) drafts_[i].push_back(logits_.rows[i]);
  }

  Rig& rig_;
  RowLogits logits_;
  std::vector<Drafts> drafts_;
};

}  // namespace

Result<Report> gate_drafted(const std::filesystem::path& model_dir, const RigOptions& options) {
  RigOptions with = options;
  with.drafts = kDrafts;
  with.rows = 1024;
  GODWIT_ASSIGN(const std::unique_ptr<Rig> rig, Rig::open(model_dir, with));
  Drafting drafting(*rig);
  Report report;
  std::mt19937 random(11);
  std::vector<Stream> streams;
  for (const int32_t slot : {1, 2, 3}) {
    Stream s{slot, std::vector<int32_t>(kPrompt + 8)};
    for (int32_t& id : s.ids)
      id = static_cast<int32_t>(random() % static_cast<uint32_t>(rig->config().text.vocab_size));
    streams.push_back(std::move(s));
  }
  std::vector<Drafts> alone;
  for (const Stream& s : streams) {
    drafting.advance({s}, RowKind::prefill, 0, kPrompt, true);
    alone.push_back(drafting.rest({s}, kPrompt - 1)[0]);
  }
  report.check(alone[0].size() == kDrafts, "{} drafts instead of {}", alone[0].size(), kDrafts);
  report.check(!same_bits(alone[0], alone[1]), "two prompts give the same drafts");

  drafting.advance(streams, RowKind::prefill, 0, kPrompt, true);
  const std::vector<Drafts> together = drafting.rest(streams, kPrompt - 1);
  for (size_t i = 0; i < streams.size(); ++i)
    report.check(same_bits(together[i], alone[i]), "company changes the drafts of sequence {}", i + 1);

  const std::vector<Stream> one = {streams[0]};
  for (const std::vector<int64_t>& edges :
       {std::vector<int64_t>{0, 64, 192, kPrompt}, std::vector<int64_t>{0, 256, kPrompt}}) {
    for (size_t i = 0; i + 1 < edges.size(); ++i)
      drafting.advance(one, RowKind::prefill, edges[i], edges[i + 1] - edges[i], edges[i + 1] == kPrompt);
    report.check(same_bits(drafting.rest(one, kPrompt - 1)[0], alone[0]), "{} slices change the drafts",
                 edges.size() - 1);
  }

  // Of the six rows of a verify `kept` are kept; the drafts of the round before lie in the caches behind
  // them.
  for (const int64_t kept : {1, 2, 4, 6}) {
    drafting.advance(one, RowKind::prefill, 0, kPrompt, true);
    for (int64_t at = kPrompt; at < kPrompt + kept; ++at)
      drafting.advance(one, RowKind::decode, at, 1, at + 1 == kPrompt + kept);
    const Drafts plain = drafting.rest(one, kPrompt + kept - 1)[0];
    std::vector<Stream> verified = one;
    const auto rejected = verified[0].ids.begin() + kPrompt + kept;
    drafting.advance(one, RowKind::prefill, 0, kPrompt, true);
    drafting.rest(one, kPrompt - 1);
    if (kept < 6) std::fill(rejected, verified[0].ids.end(), 7);
    drafting.compute(verified, RowKind::verify, kPrompt, 6);
    drafting.pair(one, RowKind::verify, kPrompt, kept, true);
    report.check(same_bits(drafting.rest(one, kPrompt + kept - 1)[0], plain),
                 "drafts behind a verify that kept {} of 6 rows differ from those of plain decoding", kept);
    if (kept == 1) continue;
    // The gate must notice a pair that is lacking.
    drafting.advance(one, RowKind::prefill, 0, kPrompt, true);
    drafting.rest(one, kPrompt - 1);
    drafting.compute(one, RowKind::verify, kPrompt, 6);
    drafting.pair(one, RowKind::verify, kPrompt + 1, kept - 1, true);
    report.check(!same_bits(drafting.rest(one, kPrompt + kept - 1)[0], plain),
                 "a lacking pair goes unnoticed");
  }
  return report;
}

}  // namespace godwit::selftest
