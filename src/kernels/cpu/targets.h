// The CPU targets every kernel file is compiled for: the baseline of the build (SSSE3), AVX2 with FMA and
// AVX-512. Included before any Highway header.
#pragma once

#define HWY_DISABLED_TARGETS (HWY_SSE4 | HWY_AVX3_DL)
