// The client and the harness themselves; no tests in this file.
#include "harness.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <poll.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <stdexcept>

#include "base/log.h"

namespace godwit::server::testing {

std::string Answer::header(std::string_view name) const {
  size_t at = head.find("\r\n");
  while (at != head.npos && at + 2 < head.size()) {
    const size_t start = at + 2;
    at = head.find("\r\n", start);
    const std::string line = head.substr(start, at == head.npos ? head.npos : at - start);
    const size_t colon = line.find(':');
    if (colon != line.npos && colon == name.size() &&
        strncasecmp(line.data(), std::string(name).c_str(), colon) == 0) {
      return line.substr(std::min(line.size(), colon + 2));
    }
  }
  return "";
}

Json Answer::json() const {
  auto parsed = parse_json(body);
  return parsed ? std::move(*parsed) : Json();
}

std::vector<std::string> Answer::events() const {
  std::vector<std::string> out;
  size_t at = 0;
  while (at < body.size()) {
    const size_t end = body.find("\n\n", at);
    if (end == body.npos) break;
    const std::string_view block = std::string_view(body).substr(at, end - at);
    if (block.starts_with("data: ")) out.emplace_back(block.substr(6));
    at = end + 2;
  }
  return out;
}

Client::Client(uint16_t port, int receive_buffer) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
  if (receive_buffer > 0) setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
    throw std::runtime_error("connect");
}
Client::~Client() {
  close();
}

bool Client::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

std::string Client::receive_some(int timeout_ms) {
  pollfd p{fd_, POLLIN, 0};
  if (poll(&p, 1, timeout_ms) <= 0) return "";
  char data[16384];
  const ssize_t n = recv(fd_, data, sizeof data, 0);
  return n > 0 ? std::string(data, static_cast<size_t>(n)) : "";
}

bool Client::at_end(int timeout_ms) {
  for (;;) {
    pollfd p{fd_, POLLIN, 0};
    if (poll(&p, 1, timeout_ms) <= 0) return false;
    char data[16384];
    if (recv(fd_, data, sizeof data, 0) <= 0) return true;
  }
}

void Client::finish_sending() {
  shutdown(fd_, SHUT_WR);
}

void Client::close(bool reset) {
  if (fd_ < 0) return;
  const linger option{1, 0};
  if (reset) setsockopt(fd_, SOL_SOCKET, SO_LINGER, &option, sizeof option);
  ::close(fd_);
  fd_ = -1;
}

Answer Client::receive(int timeout_ms) {
  const auto more = [&] {
    std::string got = receive_some(timeout_ms);
    buffer_ += got;
    return !got.empty();
  };
  for (;;) {
    size_t end;
    while ((end = buffer_.find("\r\n\r\n")) == buffer_.npos) {
      if (!more()) return {};
    }
    Answer answer;
    answer.head = buffer_.substr(0, end);
    buffer_.erase(0, end + 4);
    answer.status = std::atoi(answer.head.substr(9, 3).c_str());
    if (answer.status < 200) continue;
    if (strcasecmp(answer.header("transfer-encoding").c_str(), "chunked") == 0) {
      for (;;) {
        size_t line;
        while ((line = buffer_.find("\r\n")) == buffer_.npos) {
          if (!more()) return answer;
        }
        const size_t size = std::strtoul(buffer_.c_str(), nullptr, 16);
        while (buffer_.size() < line + 2 + size + 2) {
          if (!more()) return answer;
        }
        answer.body += buffer_.substr(line + 2, size);
        buffer_.erase(0, line + 2 + size + 2);
        if (size == 0) return answer;
      }
    }
    if (answer.header("content-length").empty()) {
      if (answer.status != 204) {
        while (more()) {
        }
        answer.body = std::move(buffer_);
      }
      return answer;
    }
    const size_t length = std::strtoul(answer.header("content-length").c_str(), nullptr, 10);
    while (buffer_.size() < length && more()) {
    }
    answer.body = buffer_.substr(0, length);
    buffer_.erase(0, length);
    return answer;
  }
}

bool becomes(const std::function<bool()>& condition) {
  for (int waited = 0; waited < kPatienceMs; waited += 5) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return condition();
}

std::string request_text(std::string_view method, std::string_view path, std::string_view body,
                         std::string_view headers) {
  std::string text = fmt::format("{} {} HTTP/1.1\r\nHost: test\r\n{}", method, path, headers);
  if (!body.empty()) text += fmt::format("Content-Length: {}\r\n", body.size());
  return text + "\r\n" + std::string(body);
}

// A body of megabytes is parsed at low priority: on a machine that compiles meanwhile it takes its time.
constexpr int kLongestWaitMs = 200'000;

Harness::Harness(std::function<Script(const engine::Request&)> script, HttpLimits limits, int64_t context,
                 bool load_now)
    : service(std::make_shared<FakeService>(std::move(script), context)),
      model(std::make_shared<ServingModel>()) {
  start_logging("off");
  const std::filesystem::path dir = std::filesystem::path(GODWIT_SOURCE_DIR) / "models/tiny-glm5next";
  static const auto tokenizer = *tokenizer::Tokenizer::load(dir / "tokenizer.json");
  model->names = {"tiny", "org/alias"};
  model->tokenizer = tokenizer;
  model->control_ids = tokenizer::find_control_ids(*tokenizer);
  model->chat_template = std::make_shared<const chat::ChatTemplate>(*chat::ChatTemplate::load(dir));
  model->defaults = read_model_config(dir)->generation;
  model->service = service;
  service->info_.stop_ids = {model->control_ids.end_of_text, model->control_ids.user,
                             model->control_ids.observation};
  service->info_.vocabulary = model->tokenizer->size();
  model->grammars = std::make_shared<grammar::GrammarCache>(
      *grammar::TokenIndex::make(model->tokenizer, model->tokenizer->size(), service->info_.stop_ids));
  ServerOptions options;
  options.http.port = 0;
  options.http.limits = limits;
  options.build = "test-build, somewhere";
  server = std::move(*Server::start(options));
  if (load_now) load();
}

void Harness::load() {
  server->set_model(model);
}

Answer Harness::get(std::string_view path) {
  Client client(port());
  client.send(request_text("GET", path));
  return client.receive(kLongestWaitMs);
}

Answer Harness::post(std::string_view path, std::string_view body) {
  Client client(port());
  client.send(request_text("POST", path, body));
  return client.receive(kLongestWaitMs);
}

std::vector<int32_t> Harness::ids(std::string_view text) const {
  return *model->tokenizer->encode(text);
}

}  // namespace godwit::server::testing
