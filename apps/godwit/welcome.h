// What `godwit serve` prints once it is ready: where it is, a curl to paste, and for the tiny model what to
// ask it.
#pragma once

#include <string>

#include "config/serve_config.h"

namespace godwit {

// `port` is the one that was bound (--port 0 picks any). Several lines, each with its end.
std::string welcome_text(const ServeConfig& config, uint16_t port);

}  // namespace godwit
