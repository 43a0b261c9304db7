// Philox4x32-10, the counter-based generator of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"
// (SC11). No state: the same key and counter give the same words on every device.
#pragma once

#include <array>
#include <cstdint>

#include "sample/sampling.h"

namespace godwit::sample {

constexpr std::array<uint32_t, 4> philox4x32_10(std::array<uint32_t, 4> counter,
                                                std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t p1 = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(p0)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// The uniform number in [0, 1) of a row, 53 bits: key = seed, counter = (position, prompt index, choice
// index). Nothing else enters, so that batching, caching and drafting never change a draw (design §7).
constexpr double uniform(const SamplingRow& row) {
  const auto position = static_cast<uint64_t>(row.position);
  const auto words = philox4x32_10({static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32),
                                    row.prompt_index, row.choice_index},
                                   {static_cast<uint32_t>(row.seed), static_cast<uint32_t>(row.seed >> 32)});
  const uint64_t bits = (uint64_t{words[0]} << 32 | words[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

}  // namespace godwit::sample
