// Ids that clients see.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace godwit::server {

// A client's x-request-id when it is printable and at most 128 bytes (it goes into headers and logs), else a
// drawn one.
std::string request_id_of(std::string_view client);

// prefix + `length` random letters and digits: "chatcmpl-…", "req-…".
std::string random_id(std::string_view prefix, size_t length = 24);

uint64_t random_seed();  // below 2^53: clients in JavaScript read it back unchanged

}  // namespace godwit::server
