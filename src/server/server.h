// The HTTP server: answers from its first moment (probes while loading), serves once a model is set, drains
// on request.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "server/context.h"
#include "server/listener.h"

namespace godwit::server {

struct ServerOptions {
  Listener::Options http;
  std::optional<uint16_t>
      admin_port;  // a second one, on the same address, for admin routes alone; 0: any free
  ServerContext::Sizes sizes;
  std::shared_ptr<const ApiKeys> keys;    // null: everybody is let in
  std::vector<std::string> cors_origins;  // none: pages of other origins are told nothing
  std::string build;
  std::string settings = "{}";  // JSON object: effective settings for /server_info
};

class Server {
 public:
  // Errors: those of Listener::start.
  static Result<std::unique_ptr<Server>> start(const ServerOptions& options);
  ~Server();  // cuts what is still open; drain() first

  uint16_t port() const { return listener_->port(); }
  uint16_t admin_port() const { return admin_ ? admin_->port() : 0; }
  void set_progress(LoadProgress progress) { context_->set_progress(std::move(progress)); }
  void set_model(std::shared_ptr<const ServingModel> model) { context_->set_model(std::move(model)); }

  // Not ready from now on; returns when every stream has ended: by itself, or with an error event once
  // `timeout_ms` have passed (design §12). Probes are answered until then.
  void drain(int64_t timeout_ms);

  ServerContext& context() { return *context_; }

 private:
  explicit Server(std::unique_ptr<ServerContext> context) : context_(std::move(context)) {}

  std::unique_ptr<ServerContext> context_;
  std::unique_ptr<Listener> listener_;  // after the context: its threads use it
  std::unique_ptr<Listener> admin_;     // likewise; only with an admin port
};

}  // namespace godwit::server
