// FP8 inputs whose first product has no rounding at all, so that what is quantised again after it is known to
// a few ulp. Rows whose later codes lie near a tie of two codes are left out: the ones that remain must agree
// with the oracle within the plain f32 tolerance, every one of them.
#pragma once

#include "harness.h"

namespace godwit::ops_test {

// [rows, cols] of small multiples of 2^-4, one value of each aligned group of 128 being +-28 = 448 / 16: the
// scale of a group is 2^-4 and every value is a code.
Matrix exact_rows(uint64_t seed, int64_t rows, int64_t cols);
// [out, in] f8_e4m3: small integers with scales that are powers of two.
Weight exact_weight(Side& s, uint64_t seed, int64_t out, int64_t in);

// The rows of `candidates` for which `requantised(side of the oracle, candidates)` has no value near a tie;
// fails when fewer than `rows` remain. Its columns are the values a later FP8 product quantises, in groups of
// `group_width` columns that are quantised on their own.
using Requantised = std::function<Matrix(Side&, const Matrix&)>;
Matrix without_near_ties(const Matrix& candidates, int64_t rows, int64_t group_width,
                         const Requantised& requantised);

}  // namespace godwit::ops_test
