// The memory of this process against the ledger: weights read in, room looked for before anything is placed.
#pragma once

#include <vector>

#include "base/result.h"
#include "weights/checkpoint.h"
#include "weights/inventory.h"
#include "weights/read_workers.h"

namespace godwit::engine {

// Bytes this process could still take without anybody swapping: of the machine, or of its control group if
// that is less. 0 when neither can be read.
int64_t available_memory();

// Which weights the ops read where the checkpoint is mapped: those that need no copy, or none (a GPU).
enum class ReadIn { what_stays, nothing };

// Brings the mapped pages that binding `inventory` will look at into memory, several threads at a time: all
// of it, or (a GPU) the small tensors that the host converts, and block scales; the rest is read past the
// mapping. data_refused, naming file and offset, when a file cannot be read.
Result<ReadStatus> read_ahead(const Checkpoint& checkpoint, const std::vector<TensorSpec>& inventory,
                              ReadIn read, const ReadOptions& options);

// Lets go of the mapped pages of the tensors that were copied, so that what the ledger says is what is
// resident. `inventory`: the tensors that were bound. data_refused when a value that is in memory anyway is
// not finite: on a GPU no value is looked at, since the files would be read twice (`godwit inspect --verify`
// does it).
Result<void> settle_weights(const Checkpoint& checkpoint, const std::vector<TensorSpec>& inventory,
                            ReadIn read);

}  // namespace godwit::engine
