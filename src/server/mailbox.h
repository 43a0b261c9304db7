// Work for an I/O thread from other threads.
//
// It is not asio::post alone: many posts cost one wake, and the work of a pass runs together. What else was
// tried and measured is in README.md.
//
// Shared, because threads that the server does not own (the engine's) post whenever they like, also after the
// I/O thread has ended. They hold the mailbox and nothing else that lives on the thread: whoever holds the
// last reference to a connection destroys it.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <mutex>
#include <vector>

namespace godwit::server {

class Mailbox {
 public:
  explicit Mailbox(boost::asio::io_context& context) : context_(context) {}
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  void post(std::function<void()> work);  // from any thread; in order; dropped after close()
  void close();                           // the context is not touched any more

 private:
  void take();

  boost::asio::io_context& context_;
  std::mutex mutex_;
  std::vector<std::function<void()>> waiting_;  // under mutex_
  bool closed_ = false;                         // under mutex_
  std::vector<std::function<void()>> taken_;
};

}  // namespace godwit::server
