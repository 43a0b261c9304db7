// Where an exception of a library or of ours would leave a client without an answer.
#pragma once

#include <exception>

#include "base/log.h"
#include "base/result.h"

namespace godwit::server {

// What `work` returns, a Result; an exception becomes an internal error, which is logged.
template <class Work>
auto caught(const Work& work) -> decltype(work()) {
  try {
    return work();
  } catch (const std::exception& e) {
    log_error("exception while working on a request: {}", e.what());
    return make_error(ErrorCode::internal, "", "the server failed on this request");
  }
}

}  // namespace godwit::server
