// Whether what a checkpoint holds are numbers.
#pragma once

#include <string_view>

#include "base/result.h"
#include "weights/checkpoint.h"

namespace godwit {

// Every element is finite: a damaged file shows as NaN or infinity sooner than in any other way, and one such
// weight spoils each answer it takes part in. Reads all of the tensor, at memory speed. data_refused naming
// tensor, element, file and offset. Dtypes without such values pass.
Result<void> check_finite(std::string_view name, const TensorRef& tensor);

}  // namespace godwit
