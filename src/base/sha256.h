// SHA-256 (FIPS 180-4): hashes of API keys. hash.h has the fast ones for everything that is no secret.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace godwit {

using Sha256 = std::array<uint8_t, 32>;

Sha256 sha256(std::string_view bytes);
std::string hex(const Sha256& digest);  // 64 lower-case digits

}  // namespace godwit
