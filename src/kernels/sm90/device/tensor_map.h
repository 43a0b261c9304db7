// Descriptions of matrices of bytes, from which boxes of rows x 128 bytes are copied (CUtensorMap, opaque).
#pragma once

#include <cstdint>

namespace godwit::sm90 {

struct alignas(128) TensorMap {
  unsigned char bytes[128];
};

// Of [rows, columns] bytes without gaps between rows; `columns` is a multiple of 16, `box_rows` at most 256.
// What a box has outside the matrix is zero. `base`, aligned to 16 bytes, is not looked at.
TensorMap tensor_map(const void* base, int64_t rows, int64_t columns, int box_rows);

}  // namespace godwit::sm90
