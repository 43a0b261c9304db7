#include "tokenizer/vocabulary.h"

#include <bit>

#include "tokenizer/piece_key.h"

namespace godwit::tokenizer {

Vocabulary::Vocabulary(int32_t ids, size_t bytes)
    : spans_(static_cast<size_t>(ids)), slots_(std::bit_ceil(static_cast<size_t>(ids) * 2 + 2)) {
  arena_.reserve(bytes);
}

size_t Vocabulary::slot_of(std::string_view bytes, uint64_t hash) const {
  size_t mask = slots_.size() - 1;
  auto tag = static_cast<uint32_t>(hash >> 32);
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    if (slots_[i].id < 0 || (slots_[i].tag == tag && bytes_of(slots_[i].id) == bytes)) return i;
  }
}

bool Vocabulary::add_unlisted(int32_t id, std::string_view bytes) {
  Span& span = spans_[static_cast<size_t>(id)];
  if (span.used) return false;
  span = {arena_.size(), static_cast<uint32_t>(bytes.size()), true};
  arena_.append(bytes);
  return true;
}

bool Vocabulary::add(int32_t id, std::string_view bytes) {
  uint64_t hash = hash_piece(bytes);
  Slot& slot = slots_[slot_of(bytes, hash)];
  if (slot.id >= 0 || !add_unlisted(id, bytes)) return false;
  slot = {static_cast<uint32_t>(hash >> 32), id};
  return true;
}

std::string_view Vocabulary::bytes_of(int32_t id) const {
  if (id < 0 || id >= size()) return {};
  const Span& span = spans_[static_cast<size_t>(id)];
  return std::string_view(arena_).substr(span.offset, span.length);
}

int32_t Vocabulary::find(std::string_view bytes) const {
  return slots_[slot_of(bytes, hash_piece(bytes))].id;
}

}  // namespace godwit::tokenizer
