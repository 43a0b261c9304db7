// How the grouped form cuts the experts' work: a group is one expert and up to `width` of the rows that chose
// it. Groups are made on the device from the router's choice, in ascending expert id, those of the shared
// expert last.
#pragma once

#include "kernels/sm90/device/pipeline.cuh"
#include "kernels/sm90/launches.h"

namespace godwit::sm90 {

// With where its expert's weights lie, so that a product finds them in one load.
struct Group {
  int32_t expert;  // on this rank; -1 = shared
  int32_t first;   // of its entries in Groups::entry
  int32_t rows;    // 1 … width
  int32_t up_scale_stride, down_scale_stride;
  int32_t unused[3];
  const void *gate, *up, *down;
  const float *gate_scales, *up_scales, *down_scales;
};

// Entries t k + i stand for choice i of row t, entries T k + t for the shared expert of row t.
struct Groups {
  int32_t*
      count;     // [3]: groups of routed experts, of the shared one; chunks of gate and up that were claimed
  Group* group;  // [groups]
  int32_t* entry;  // [T (k + 1)] by group; the order inside a group decides nothing
  int32_t* token;  // the row of each
};
constexpr int kClaimed = 2;
constexpr int64_t most_groups(int64_t rows, int64_t chosen) {
  return rows * chosen + (rows + 7) / 8;
}

// What is grouped.
struct Choice {
  Rows<const int32_t> ids;  // [T, k]
  int32_t rows, chosen;
  int32_t first, held;  // experts of this rank
  const kernels::ExpertWeights* experts;
  kernels::ExpertWeights shared;  // if any
  bool has_shared;
  int32_t width;  // rows of a group
  Groups to;
};

}  // namespace godwit::sm90
