#include "tokenizer/tokenizer.h"

#include <algorithm>

#include "tokenizer/utf8.h"

namespace godwit::tokenizer {
namespace {

Result<void> check_ranges(std::span<const LiteralRange> literal, size_t size) {
  size_t last = 0;
  for (const LiteralRange& range : literal) {
    if (range.begin < last || range.end < range.begin || range.end > size)
      return make_error(ErrorCode::invalid_request, "literal",
                        "byte range {}..{} is not ascending or lies outside the text of {} bytes",
                        range.begin, range.end, size);
    last = range.end;
  }
  return {};
}

}  // namespace

Tokenizer::Tokenizer(TokenizerParts parts) : parts_(std::move(parts)) {}

const AddedToken* Tokenizer::find_added(int32_t id) const {
  const auto& added = parts_.added_tokens;
  auto at = std::lower_bound(added.begin(), added.end(), id,
                             [](const AddedToken& t, int32_t x) { return t.id < x; });
  return at != added.end() && at->id == id ? &*at : nullptr;
}

int32_t Tokenizer::id_of(std::string_view bytes) const {
  for (const AddedToken& token : parts_.added_tokens) {
    if (token.content == bytes) return token.id;
  }
  return parts_.vocabulary.find(bytes);
}

void Tokenizer::compute_piece(std::string_view piece, EncodeState& state, std::vector<int32_t>& out) const {
  if (parts_.ignore_merges) {
    int32_t id = parts_.vocabulary.find(piece);
    if (id >= 0) return out.push_back(id);
  }
  merge_piece(piece, parts_.byte_ids, parts_.merges, state.scratch, out);
}

void Tokenizer::encode_piece(std::string_view piece, EncodeState& state, std::vector<int32_t>& out) const {
  if (piece.size() > PieceKey::kMaxBytes) return compute_piece(piece, state, out);
  PieceKey key = make_piece_key(piece);
  PieceCache::Entry& entry = state.cache.slot(key);
  if (entry.key == key) {
    if (entry.count == 1) return out.push_back(entry.ids[0]);
    out.insert(out.end(), entry.ids.data(), entry.ids.data() + entry.count);
    return;
  }
  size_t before = out.size();
  compute_piece(piece, state, out);
  size_t count = out.size() - before;
  if (count > PieceCache::kMaxIds) return;
  entry.key = key;
  entry.count = static_cast<uint32_t>(count);
  std::copy(out.end() - static_cast<ptrdiff_t>(count), out.end(), entry.ids.begin());
}

Result<void> Tokenizer::encode_segment(std::string_view segment, EncodeState& state,
                                       std::vector<int32_t>& out) const {
  for (size_t at = 0; at < segment.size();) {
    state.ends.clear();
    GODWIT_ASSIGN(size_t next, parts_.pre_tokenizer->split(segment, at, state.ends));
    for (uint32_t end : state.ends) {
      encode_piece(segment.substr(at, end - at), state, out);
      at = end;
    }
    at = next;
  }
  return {};
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text, const AddedTokens& added,
                                               std::span<const LiteralRange> literal) const {
  if (text.size() > kMaxTextBytes)
    return make_error(ErrorCode::too_large, "text", "{} bytes of text are more than the limit of {}",
                      text.size(), kMaxTextBytes);
  GODWIT_TRY(check_ranges(literal, text.size()));
  std::string replaced;
  if (!is_utf8(text)) {
    if (!literal.empty())
      return make_error(ErrorCode::invalid_request, "text", "is not UTF-8, which literal ranges need");
    replaced = replace_malformed(text);
    text = replaced;
  }
  EncodePool::Lease state(pool_);
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 3 + 16);
  for (size_t at = 0; at < text.size();) {
    AddedTokenMatcher::Match match = parts_.matcher.find(text, at, added, literal);
    size_t end = match.id >= 0 ? match.begin : text.size();
    GODWIT_TRY(encode_segment(text.substr(at, end - at), *state, ids));
    if (match.id < 0) break;
    ids.push_back(match.id);
    at = match.end;
  }
  return ids;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool skip_special_tokens) const {
  std::string bytes;
  for (int32_t id : ids) {
    if (!(skip_special_tokens && is_special(id))) bytes.append(bytes_of(id));
  }
  return is_utf8(bytes) ? bytes : replace_malformed(bytes);
}

}  // namespace godwit::tokenizer
