// Backends by the name --device gives them.
#pragma once

#include "kernels/ops.h"

namespace godwit::kernels {

// cpu (`threads` threads, 0 = all cores), reference, or cuda (device 0). A backend that this build or machine
// does not have is an error.
Result<std::unique_ptr<Ops>> make_ops(std::string_view backend, int threads);

// CUDA devices that this build can use: 0 without a driver, or without the backend.
int cuda_devices();

}  // namespace godwit::kernels
