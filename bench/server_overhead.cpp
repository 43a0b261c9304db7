// Server overhead: µs of CPU per streamed token and memory of many streams, over an engine that replays ids.
// Usage: server_overhead [streams = 256] [tokens a stream = 2000] [µs between the engine's passes = 0] [model
// dir]
//
// The client is a second process, so that only the server's CPU is counted; the CPU of the replaying thread
// and of this one, which watches the memory, is measured by itself and taken off.
#include <arpa/inet.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "../tests/unit/server/fake_service.h"
#include "base/log.h"
#include "server/server.h"

namespace {

using namespace godwit;
using namespace godwit::server;

// Reads every stream to its end; exit code 0 when all ended with [DONE].
int run_client(int port_pipe, int streams, int tokens) {
  uint16_t port = 0;
  if (read(port_pipe, &port, sizeof port) != sizeof port) return 2;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const std::string body = fmt::format(
      R"({{"stream":true,"max_tokens":{},"messages":[{{"role":"user","content":"Hello"}}]}})", tokens);
  const std::string text = fmt::format(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nConnection: close\r\nContent-Length: "
      "{}\r\n\r\n{}",
      body.size(), body);
  std::vector<pollfd> sockets;
  std::vector<std::string> tails(static_cast<size_t>(streams));
  for (int i = 0; i < streams; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return 3;
    if (send(fd, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) return 4;
    sockets.push_back({fd, POLLIN, 0});
  }
  int open = streams, whole = 0;
  std::vector<char> buffer(1 << 18);
  while (open > 0) {
    poll(sockets.data(), sockets.size(), -1);
    for (size_t i = 0; i < sockets.size(); ++i) {
      if (sockets[i].fd < 0 || sockets[i].revents == 0) continue;
      const ssize_t n = recv(sockets[i].fd, buffer.data(), buffer.size(), 0);
      if (n > 0) {
        std::string& tail = tails[i];
        tail.append(buffer.data(), static_cast<size_t>(n));
        if (tail.size() > 32) tail.erase(0, tail.size() - 32);
        continue;
      }
      whole += tails[i].find("[DONE]") != std::string::npos;
      close(sockets[i].fd);
      sockets[i].fd = -1;
      --open;
    }
  }
  return whole == streams ? 0 : 5;
}

struct Cpu {
  double user = 0;
  double system = 0;
};

// who: RUSAGE_SELF or RUSAGE_THREAD.
Cpu cpu_seconds(int who) {
  rusage usage{};
  getrusage(who, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return {seconds(usage.ru_utime), seconds(usage.ru_stime)};
}

double resident_mib() {
  std::ifstream statm("/proc/self/statm");
  int64_t total = 0, resident = 0;
  statm >> total >> resident;
  return static_cast<double>(resident * sysconf(_SC_PAGESIZE)) / (1 << 20);
}

}  // namespace

int main(int argc, char** argv) {
  const int streams = argc > 1 ? std::atoi(argv[1]) : 256;
  const int tokens = argc > 2 ? std::atoi(argv[2]) : 2000;
  const int delay_us = argc > 3 ? std::atoi(argv[3]) : 0;
  const std::filesystem::path dir = argc > 4 ? argv[4] : "models/tiny-glm5next";
  int port_pipe[2];
  if (pipe(port_pipe) != 0) return 1;
  const pid_t client = fork();
  if (client == 0) return run_client(port_pipe[0], streams, tokens);

  start_logging("warn");
  auto tokenizer = tokenizer::Tokenizer::load(dir / "tokenizer.json");
  auto chat_template = chat::ChatTemplate::load(dir);
  if (!tokenizer || !chat_template) {
    fmt::print(stderr, "no tokenizer or template in {}\n", dir.string());
    return 1;
  }
  auto model = std::make_shared<ServingModel>();
  model->names = {"bench"};
  model->tokenizer = *tokenizer;
  model->control_ids = tokenizer::find_control_ids(**tokenizer);
  model->chat_template = std::make_shared<const chat::ChatTemplate>(std::move(*chat_template));
  // Half of it thinking, half content: text of the training language.
  std::vector<int32_t> ids;
  const auto words = *(*tokenizer)->encode("The quick answer is 42, and there are 7 more to count. ");
  for (int i = 0; i < tokens; ++i) {
    ids.push_back(i == tokens / 2 ? model->control_ids.think_close
                                  : words[static_cast<size_t>(i) % words.size()]);
  }
  auto service = std::make_shared<server::testing::FakeService>(
      [&](const engine::Request&) {
        return server::testing::Script{ids, engine::FinishReason::length};
      },
      1 << 20);
  service->token_delay_us_ = delay_us;
  model->service = service;
  ServerOptions options;
  options.http.port = 0;
  options.http.threads = 1;
  options.build = "bench";
  auto server = Server::start(options);
  if (!server) return 1;
  (*server)->set_model(model);

  const Cpu before = cpu_seconds(RUSAGE_SELF);
  const Cpu watching_before = cpu_seconds(RUSAGE_THREAD);
  const int64_t fake_before = service->cpu_ns_;
  const double memory_before = resident_mib();
  const auto start = std::chrono::steady_clock::now();
  const uint16_t port = (*server)->port();
  if (write(port_pipe[1], &port, sizeof port) != sizeof port) return 1;
  double memory_half = 0, memory_peak = 0;
  int status = 0;
  const int64_t total = static_cast<int64_t>(streams) * tokens;
  while (waitpid(client, &status, WNOHANG) == 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    memory_peak = std::max(memory_peak, resident_mib());
    if (memory_half == 0 && service->pushed_ * 2 > total) memory_half = resident_mib();
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double fake = static_cast<double>(service->cpu_ns_ - fake_before) * 1e-9;
  const Cpu after = cpu_seconds(RUSAGE_SELF);
  const Cpu watching_after = cpu_seconds(RUSAGE_THREAD);
  const double watching =
      watching_after.user + watching_after.system - watching_before.user - watching_before.system;
  const double system = after.system - before.system;
  const double cpu = after.user - before.user + system - fake - watching;
  fmt::print("streams {} x {} tokens, all ended with [DONE]: {}\n", streams, tokens,
             WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "yes" : "NO");
  const double per_token = 1e6 / static_cast<double>(total);
  fmt::print(
      "server CPU per token   {:.2f} us   (replaying thread, not counted: {:.2f} us; kernel, all threads: "
      "{:.2f} us)\n",
      cpu * per_token, fake * per_token, system * per_token);
  fmt::print("throughput             {:.0f} tokens/s\n", static_cast<double>(total) / seconds);
  fmt::print("resident               {:.1f} MiB before, {:.1f} half-way, {:.1f} at most\n", memory_before,
             memory_half, memory_peak);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
