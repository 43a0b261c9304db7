// Members of a generating request that nothing here knows: they are accepted, because clients send what is
// new or meant for others, and reported once each in the log, because a misspelt one would go unnoticed.
#pragma once

#include <string_view>

#include "base/json.h"

namespace godwit::server {

// `route`: for the log. Safe from any thread.
void report_unknown_fields(const Json& body, std::string_view route);

// Whether /v1/chat/completions or /v1/completions reads the member, or ignores it on purpose (api spec §4.5).
bool is_known_field(std::string_view name);

}  // namespace godwit::server
