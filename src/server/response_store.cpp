#include "server/response_store.h"

namespace godwit::server {
namespace {

constexpr size_t kEntryBytes = 512;  // list node, index entry, control blocks

}  // namespace

void ResponseStore::put(const std::string& id, StoredResponse response) {
  const size_t bytes = kEntryBytes + 2 * id.size() + response.owner.size() + response.body.size() +
                       response.conversation.size();
  if (bytes > max_bytes_ || max_entries_ == 0) return;
  auto shared = std::make_shared<const StoredResponse>(std::move(response));
  std::lock_guard lock(mutex_);
  if (auto old = index_.find(id); old != index_.end()) drop(old->second);
  while (entries_.size() >= max_entries_ || bytes_ + bytes > max_bytes_) drop(std::prev(entries_.end()));
  entries_.push_front({id, bytes, std::move(shared)});
  index_.emplace(id, entries_.begin());
  bytes_ += bytes;
}

std::shared_ptr<const StoredResponse> ResponseStore::find(const std::string& id, const std::string& owner) {
  std::lock_guard lock(mutex_);
  const auto at = index_.find(id);
  if (at == index_.end() || at->second->response->owner != owner) return nullptr;
  entries_.splice(entries_.begin(), entries_, at->second);
  return at->second->response;
}

bool ResponseStore::erase(const std::string& id, const std::string& owner) {
  std::lock_guard lock(mutex_);
  const auto at = index_.find(id);
  if (at == index_.end() || at->second->response->owner != owner) return false;
  drop(at->second);
  return true;
}

void ResponseStore::drop(std::list<Entry>::iterator entry) {
  bytes_ -= entry->bytes;
  index_.erase(entry->id);
  entries_.erase(entry);
}

}  // namespace godwit::server
