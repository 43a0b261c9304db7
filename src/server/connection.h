// One client connection: reads requests one after the other, hands each to the handler, writes the answer.
//
// One read is outstanding at all times, also while a request is answered: that is how a client that leaves is
// noticed in the queue, in the prefill and while decoding, streaming or not (api spec §4.12). A client that
// only shut down its sending side is told apart by writing something harmless to it.
#pragma once

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <functional>
#include <memory>

#include "server/http.h"
#include "server/io_thread.h"

namespace godwit::server {

// What all connections of a listener share.
struct ConnectionHost {
  HttpLimits limits;
  HttpHandlers handlers;
  std::atomic<bool> closing{false};     // no more keep-alive
  std::atomic<int64_t> connections{0};  // open ones
  std::atomic<int64_t> exchanges{0};    // requests whose answer is not yet sent whole
  std::atomic<int64_t> shedding{0};     // threads that have been asked to cut idle ones
  std::atomic<int64_t> body_bytes{0};   // what HttpLimits::all_body_bytes bounds
};

// Starts serving `socket`, which belongs to the thread's context; on that thread. The connection owns itself
// until it ends, and does no locking of its own.
void serve_connection(IoThread& thread, boost::asio::ip::tcp::socket socket,
                      std::shared_ptr<ConnectionHost> host);

}  // namespace godwit::server
