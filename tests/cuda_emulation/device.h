// What a test may do to the emulated device.
#pragma once

#include <cstdint>

namespace godwit::emulation {

// The fault point "cuda.kernel" lets a kernel read outside memory, "cuda.copy" a copy of page-locked memory.
// As with CUDA the call itself succeeds, nothing runs any more, and every call after it fails. Undone by
// this, where a process would have to end.
void repair_device();

// Kernels that ran.
int64_t kernels_run();

// Bytes the device has; 8 GiB at first. What is not allocated of them is free; more can be allocated (tests
// of far offsets do, and touch little of it).
void set_device_memory(int64_t bytes);
// Somebody else takes so many of them, or gives them back (negative).
void take_device_memory(int64_t bytes);

}  // namespace godwit::emulation
