// Shapes above these are refused by prepare(): the kernels keep them in registers or on the stack.
#pragma once

#include <cstdint>

namespace godwit::cpu {

constexpr int64_t kMaxStreams = 8;  // mHC streams
constexpr int64_t kMaxTaps = 8;     // convolution taps
constexpr int64_t kMaxIndexHeads = 256;
constexpr int64_t kMaxExpertsChosen = 64;

constexpr int64_t kChunk = 16;  // rows of a KDA chunk: divides the grid of 64 of design §7

}  // namespace godwit::cpu
