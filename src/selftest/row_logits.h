// What gates of logits share: the rows that drew, and whether they are the same.
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "selftest/rig.h"

namespace godwit::selftest {

inline std::span<const int32_t> part(const std::vector<int32_t>& ids, int64_t first, int64_t count) {
  return std::span(ids).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Logits of the rows that drew in the newest step or draft.
class RowLogits final : public model::Observer {
 public:
  explicit RowLogits(Rig& rig) : rig_(rig) { rig.model().observe(this); }
  ~RowLogits() override { rig_.model().observe(nullptr); }
  void after_layer(int, const View&) override {}
  void after_select(int, const View&, const View&) override {}
  void after_route(int, const View&, const View&) override {}
  void before_sample(const View&, const View& logits) override {
    rows.clear();
    for (int64_t r = 0; r < logits.rows; ++r)
      rows.emplace_back(logits.row<float>(r), logits.row<float>(r) + logits.cols);
  }
  std::vector<std::vector<float>> rows;

 private:
  Rig& rig_;
};

}  // namespace godwit::selftest
