// One thread that owns sockets: an io_context run by it alone, the connections living there, and a mailbox
// for work from other threads.
//
// The mailbox is not asio::post alone: many posts cost one wake, and the work of a pass runs together. What
// else was tried and measured is in README.md.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_set>
#include <vector>

namespace godwit::server {

class IoThread {
 public:
  // What lives on the thread and must end before it.
  class Resident {
   public:
    virtual void cut() = 0;  // leave(), at once

   protected:
    ~Resident() = default;
  };

  IoThread() = default;
  ~IoThread();  // stop()
  IoThread(const IoThread&) = delete;
  IoThread& operator=(const IoThread&) = delete;

  void start();
  void stop();  // cuts the residents, ends the thread; work that is posted later is dropped

  void post(std::function<void()> work);  // from any thread; in order
  boost::asio::io_context& context() { return context_; }

  // On the thread itself.
  void enter(Resident* resident) { residents_.insert(resident); }
  void leave(Resident* resident) { residents_.erase(resident); }

 private:
  void take();
  void run();

  boost::asio::io_context context_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> never_done_{
      context_.get_executor()};
  std::mutex mutex_;
  std::vector<std::function<void()>> waiting_;  // under mutex_
  bool closed_ = false;                         // under mutex_
  std::vector<std::function<void()>> taken_;
  std::unordered_set<Resident*> residents_;
  std::thread thread_;
};

}  // namespace godwit::server
