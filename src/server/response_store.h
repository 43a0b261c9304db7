// Answers of /v1/responses that clients may come back to: by id, and as the history of a next request
// (previous_response_id). Bounded by count and bytes; the least recently used goes first. In memory only.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

namespace godwit::server {

struct StoredResponse {
  std::string owner;         // name of the API key it was made with; only that key finds it
  uint64_t cache_salt = 0;   // only requests with the same salt may continue it
  std::string body;          // the response object
  std::string conversation;  // JSON array of chat messages, the answer included, instructions not
};

class ResponseStore {
 public:
  // 0 entries or bytes: nothing is kept.
  ResponseStore(size_t max_entries, size_t max_bytes) : max_entries_(max_entries), max_bytes_(max_bytes) {}

  // An entry that is larger than the store is not kept.
  void put(const std::string& id, StoredResponse response);
  // Null when there is none for this owner.
  std::shared_ptr<const StoredResponse> find(const std::string& id, const std::string& owner);
  bool erase(const std::string& id, const std::string& owner);

 private:
  struct Entry {
    std::string id;
    size_t bytes;
    std::shared_ptr<const StoredResponse> response;
  };
  void drop(std::list<Entry>::iterator entry);

  const size_t max_entries_;
  const size_t max_bytes_;
  std::mutex mutex_;
  size_t bytes_ = 0;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<std::string, std::list<Entry>::iterator> index_;
};

}  // namespace godwit::server
