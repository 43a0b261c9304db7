// The memory of this process against the ledger: weights read in, room looked for before anything is placed.
#pragma once

#include <vector>

#include "base/result.h"
#include "weights/checkpoint.h"
#include "weights/inventory.h"

namespace godwit::engine {

// Bytes this process could still take without anybody swapping: of the machine, or of its control group if
// that is less. 0 when neither can be read.
int64_t available_memory();

// Which weights the ops read where the checkpoint is mapped: those that need no copy, or none (a GPU).
enum class ReadIn { what_stays, nothing };

// Reads the tensors that the ops use in place into memory and lets go of the mapped pages of those that were
// copied, so that what the ledger says is what is resident. `inventory`: the tensors that were bound.
// data_refused when a file cannot be read, or a value that is in memory anyway is not finite: on a GPU no
// value is looked at, since the files would be read twice (`godwit inspect --verify` does it).
Result<void> settle_weights(const Checkpoint& checkpoint, const std::vector<TensorSpec>& inventory,
                            ReadIn read);

}  // namespace godwit::engine
