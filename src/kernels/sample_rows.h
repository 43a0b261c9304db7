// Ops::sample and Ops::history_start for backends whose memory the host can address: slots and offsets of the
// step become the row views of src/sample.
#pragma once

#include "kernels/ops/head.h"
#include "sample/draw.h"

namespace godwit::kernels {

// Row r of the op; rows of different slots may run on different threads, each with its own workspace of
// logits.cols candidates. A row that cannot be drawn from leaves id 0 in last_token, a valid id, because the
// slot's next step may already be planned.
void sample_one(const Sample& a, int64_t r, sample::Candidate* workspace);

void start_history(const HistoryStart& a);

}  // namespace godwit::kernels
