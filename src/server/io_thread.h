// One thread that owns sockets: an io_context run by it alone, the connections living there, and a mailbox
// for work from other threads.
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <limits>
#include <memory>
#include <thread>
#include <unordered_set>

#include "server/mailbox.h"

namespace godwit::server {

class IoThread {
 public:
  // What lives on the thread and must end before it.
  class Resident {
   public:
    static constexpr int64_t kBusy = std::numeric_limits<int64_t>::max();

    virtual void cut() = 0;                  // leave(), at once
    virtual int64_t idle_since() const = 0;  // SteadyClock; kBusy while anything is under way

   protected:
    ~Resident() = default;
  };

  IoThread() = default;
  ~IoThread();  // stop()
  IoThread(const IoThread&) = delete;
  IoThread& operator=(const IoThread&) = delete;

  void start();
  void stop();  // cuts the residents, ends the thread, closes the mailbox

  boost::asio::io_context& context() { return context_; }
  const std::shared_ptr<Mailbox>& mailbox() const { return mailbox_; }

  // On the thread itself.
  void enter(Resident* resident) { residents_.insert(resident); }
  void leave(Resident* resident) { residents_.erase(resident); }
  void cut_idle(size_t count);  // so many at most, those that have been idle longest

 private:
  void run();

  boost::asio::io_context context_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> never_done_{
      context_.get_executor()};
  std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>(context_);
  std::unordered_set<Resident*> residents_;
  std::thread thread_;
};

}  // namespace godwit::server
