// Vocabulary: id <-> bytes. Ids may have holes; a hole has no bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace godwit::tokenizer {

class Vocabulary {
 public:
  static constexpr int32_t kMaxIds = 1 << 22;

  // Room for ids 0..ids-1 and `bytes` bytes in all, so that building never reallocates.
  Vocabulary(int32_t ids, size_t bytes);

  // Both return false, changing nothing, when the id is taken; add() also when the bytes are. 0 <= id <
  // size().
  bool add(int32_t id, std::string_view bytes);           // found by find()
  bool add_unlisted(int32_t id, std::string_view bytes);  // has bytes, but find() never returns it

  int32_t size() const { return static_cast<int32_t>(spans_.size()); }
  bool has(int32_t id) const { return id >= 0 && id < size() && spans_[static_cast<size_t>(id)].used; }
  // Empty for an id without a token, whatever its value.
  std::string_view bytes_of(int32_t id) const;
  // The id whose bytes are exactly these, -1 when none.
  int32_t find(std::string_view bytes) const;

 private:
  struct Span {
    uint64_t offset = 0;
    uint32_t length = 0;
    bool used = false;
  };
  struct Slot {
    uint32_t tag = 0;  // the hash's upper half: most mismatches never touch the bytes
    int32_t id = -1;
  };

  size_t slot_of(std::string_view bytes, uint64_t hash) const;

  std::string arena_;
  std::vector<Span> spans_;  // [size()]
  std::vector<Slot> slots_;  // open addressing, a power of two, at most half full
};

}  // namespace godwit::tokenizer
