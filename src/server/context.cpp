#include "server/context.h"

namespace godwit::server {

Result<std::shared_ptr<const ServingModel>> ServerContext::loaded() const {
  if (auto there = model()) return there;
  const LoadProgress p = progress();
  if (!p.failed.empty())
    return make_error(ErrorCode::unavailable, "", "the model could not be loaded: {}", p.failed);
  return make_error(ErrorCode::unavailable, "", "the model is still loading ({}, {:.0f} %)", p.phase,
                    p.fraction * 100);
}

Result<void> ServerContext::accepting() const {
  if (draining.load()) return make_error(ErrorCode::unavailable, "", "the server is shutting down");
  GODWIT_ASSIGN(const auto there, loaded());
  const engine::Status status = there->service->status();
  switch (status.health) {
    case engine::Health::ready:
      return {};
    case engine::Health::loading:
      return make_error(ErrorCode::unavailable, "", "the engine is still starting");
    case engine::Health::draining:
      return make_error(ErrorCode::unavailable, "", "the engine is shutting down");
    case engine::Health::dead:
      break;
  }
  return make_error(ErrorCode::unavailable, "", "the engine has failed: {}", status.dead_reason);
}

}  // namespace godwit::server
