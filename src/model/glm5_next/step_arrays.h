// The arrays of a step in the backend's memory: those of the StepPlan themselves where the host's memory is
// the backend's, else a copy made by one upload into a buffer allocated once for the largest step.
#pragma once

#include <vector>

#include "model/glm5_next/arena.h"
#include "schedule/step_plan.h"

namespace godwit::model {

class StepArrays {
 public:
  StepArrays(Arena& arena, const kernels::StepLimits& limits);

  // Valid until the next call, and while the plan is. On a device a plan of decode rows may be padded to
  // `padded` of them: rows of position 0 in the reserved slot and page, with no draw.
  void set(const schedule::StepPlan& plan, int64_t padded = 0);
  // The same for rows that are among those of the step set before, by slot and position: `sources` tells
  // which.
  void follow(const schedule::StepPlan& plan);

  kernels::StepView view;
  int64_t sampled = 0;                    // R, logits rows
  const int32_t* sampled_rows = nullptr;  // [R] row of each
  const sample::SamplingRow* samples = nullptr;
  const int32_t* sources = nullptr;  // [rows] after follow(): row of the step before
  const int32_t* bias_ids = nullptr;
  const float* bias_values = nullptr;

 private:
  template <class T>
  const T* stage(const std::vector<T>& host);

  void arrange(const schedule::StepPlan& plan, int64_t padded);
  void pack(const schedule::StepPlan& plan);
  void pad();

  Arena& arena_;
  kernels::StepLimits limits_;
  std::vector<kernels::Sequence> sequences_;
  std::vector<int32_t> row_sequence_;
  std::vector<int32_t> sampled_rows_;
  std::vector<int32_t> sources_;
  // Devices only: page tables without what the step does not use, and the plan's rows with their padding.
  std::vector<int32_t> pages_, ids_;
  std::vector<sample::SamplingRow> samples_;
  Buffer staging_;               // what the upload sends
  std::byte* device_ = nullptr;  // where it goes, as large
  int64_t staged_ = 0;           // bytes of this step
};

}  // namespace godwit::model
