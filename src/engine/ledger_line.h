// Entries of the ledger that others show: /server_info, `godwit plan`, the metrics.
#pragma once

#include <cstdint>
#include <string>

namespace godwit::engine {

struct LedgerLine {
  std::string name;
  int64_t bytes = 0;
  std::string detail;     // what it is made of
  bool on_device = true;  // else host memory of its own
};

// A setting whose effective value is not the requested one (pains A15, O2).
struct Adjustment {
  std::string setting;  // the flag without dashes
  int64_t requested = 0;
  int64_t effective = 0;
  std::string reason;
};

}  // namespace godwit::engine
