// What a step costs on one rank of four H200 (TP4), as a table, until measured ones exist.
// Decode: anchors §2.10, bytes at 4.3 TB/s plus 0.65 ms for collectives and launches. Prompts: kernels spec
// §4.8, 12.6 µs a token in slices of 16K, and never less than streaming the experts that the rows touch
// (18.7 ms for all of them). Context: the index scan, 6.2 ps a prompt row and 84 ps a decode row for each
// token of it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>

#include "schedule/step_plan.h"

namespace godwit::simulator {

struct StepCosts {
  double scored_us = 0;      // that a scored row takes beyond its prompt row
  double prompt_factor = 1;  // kernels spec §4.8: 1.25–1.35 is expected of the first tuned kernels

  static double decode_ms(double rows) {
    struct Point {
      double rows, ms;
    };
    static constexpr Point kTable[] = {{0, 0},      {1, 2.04},   {4, 3.50},    {8, 5.28},    {16, 8.33},
                                       {32, 12.85}, {64, 17.85}, {128, 21.75}, {256, 25.35}, {1024, 48.0}};
    const auto* to = std::find_if(std::begin(kTable) + 1, std::end(kTable) - 1,
                                  [rows](const Point& p) { return rows <= p.rows; });
    const auto* from = to - 1;
    return from->ms + (to->ms - from->ms) * (rows - from->rows) / (to->rows - from->rows);
  }

  double prompt_ms(double rows) const {
    if (rows == 0) return 0;
    const double touched = 1 - std::pow(1 - 8.0 / 288, rows);
    return prompt_factor * std::max(18.7 * touched, 8.0 + 0.0121 * rows);
  }

  // Records of a rank with bf16 latents (`godwit plan`), at what PCIe 5 and one checksumming core give.
  static constexpr cache::RecordBytes kRecordBytes = {835'584, 35'000'000, 36'000'000};
  static int64_t copy_ns(const schedule::StepPlan& plan) {
    constexpr double kBytesPerNs = 12;
    double bytes = 0;
    for (const cache::Move& m : plan.moves)
      bytes += static_cast<double>(kRecordBytes[static_cast<size_t>(m.what)]);
    return static_cast<int64_t>(bytes / kBytesPerNs);
  }

  // Without copies.
  int64_t ns(const schedule::StepPlan& plan) const {
    double scan = 0;
    for (const schedule::PlanSequence& p : plan.sequences) {
      const double each = p.rows.kind == kernels::RowKind::prefill ? 6.2e-9 * prompt_factor : 8.4e-8;
      scan += each * static_cast<double>(p.rows.rows) * static_cast<double>(p.rows.first);
    }
    for (const sample::SamplingRow& row : plan.samples) scan += row.scored >= 0 ? scored_us / 1000 : 0;
    const double decode = plan.decode_rows();
    return static_cast<int64_t>(1e6 * (decode_ms(decode) + prompt_ms(plan.rows() - decode) + scan));
  }
};

}  // namespace godwit::simulator
