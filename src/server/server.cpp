#include "server/server.h"

#include <chrono>
#include <thread>

#include "base/clock.h"
#include "server/routes/route_table.h"

namespace godwit::server {
namespace {

HttpHandlers handlers(ServerContext& context, bool admin_port) {
  HttpHandlers out;
  out.handle = [&context, admin_port](HttpRequest&& request, const std::shared_ptr<ResponseWriter>& writer) {
    request.admin_port = admin_port;
    dispatch(context, std::move(request), writer);
  };
  out.turn_away = [&context, admin_port](HttpRequest& head) {
    head.admin_port = admin_port;
    return turn_away(context, head);
  };
  out.refuse = [&context](const Error& error, HttpRequest known) {
    return refuse(context, error, std::move(known));
  };
  return out;
}

}  // namespace

Result<std::unique_ptr<Server>> Server::start(const ServerOptions& options) {
  std::unique_ptr<Server> server(new Server(std::make_unique<ServerContext>(options.sizes)));
  ServerContext& context = *server->context_;
  context.build = options.build;
  context.settings = options.settings;
  context.keys = options.keys;
  context.cors_origins = options.cors_origins;
  context.has_admin_port = options.admin_port.has_value();
  GODWIT_ASSIGN(server->listener_, Listener::start(options.http, handlers(context, false)));
  if (options.admin_port) {
    Listener::Options admin = options.http;
    admin.port = *options.admin_port;
    admin.port_flag = "--admin-port";
    admin.threads = 1;
    GODWIT_ASSIGN(server->admin_, Listener::start(admin, handlers(context, true)));
  }
  context.connections = [listener = server->listener_.get()] { return listener->connections(); };
  context.body_bytes = [listener = server->listener_.get()] { return listener->body_bytes(); };
  return server;
}

Server::~Server() {
  if (admin_) admin_->stop();
  if (listener_) listener_->stop();
  context_->workers.stop();  // their jobs hold connections, which end before the threads they live on
}

void Server::drain(int64_t timeout_ms) {
  context_->draining = true;
  listener_->begin_closing();
  if (admin_) admin_->begin_closing();
  const SteadyClock clock;
  if (const auto model = context_->model()) {
    model->service->drain(clock.now_ns() + timeout_ms * 1'000'000);
  }
  // The last events are on their way to the clients: give them a moment, but no longer than a stuck client is
  // worth.
  constexpr int64_t kFlushNs = 2'000'000'000;
  const int64_t until = clock.now_ns() + kFlushNs;
  while (listener_->exchanges() > 0 && clock.now_ns() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace godwit::server
