#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <string>

#include "tokenizer/pretokenizer.h"
#include "tokenizer/utf8.h"

namespace godwit::tokenizer {

const std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

namespace {

constexpr uint32_t kMatchLimit = 50'000'000;
constexpr uint32_t kHeapLimitKiB = 64 * 1024;

template <class T, void (*Free)(T*)>
struct FreeWith {
  void operator()(T* p) const { Free(p); }
};
using Code = std::unique_ptr<pcre2_code, FreeWith<pcre2_code, pcre2_code_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, FreeWith<pcre2_match_data, pcre2_match_data_free>>;
using MatchContext =
    std::unique_ptr<pcre2_match_context, FreeWith<pcre2_match_context, pcre2_match_context_free>>;

std::string message_of(int code) {
  PCRE2_UCHAR buffer[256] = {};
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

class RegexSplitter final : public PreTokenizer {
 public:
  RegexSplitter(Code code, MatchContext context, bool jit)
      : code_(std::move(code)), context_(std::move(context)), jit_(jit) {}

  Result<size_t> split(std::string_view segment, size_t at, std::vector<uint32_t>& ends) const override {
    MatchData data(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    if (!data) return make_error(ErrorCode::internal, "pre_tokenizer", "out of memory for a PCRE2 match");
    size_t search = at;  // runs ahead of `at` over empty matches, which split nothing
    for (size_t count = 0; count + 2 <= kBatch && at < segment.size();) {
      int found = match(segment, search, data.get());
      if (found == PCRE2_ERROR_NOMATCH) {
        ends.push_back(static_cast<uint32_t>(segment.size()));
        return segment.size();
      }
      if (found < 0)
        return make_error(ErrorCode::unprocessable, "pre_tokenizer",
                          "the pre-token pattern cannot be matched at byte {}: {}", search,
                          message_of(found));
      const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
      if (range[1] <= range[0] || range[1] <= search) {
        if (search == segment.size()) {
          ends.push_back(static_cast<uint32_t>(segment.size()));
          return segment.size();
        }
        search = std::max<size_t>(search, range[1]);
        if (search < segment.size()) search += next_utf8(segment.substr(search)).length;
        continue;
      }
      if (range[0] > at) ends.push_back(static_cast<uint32_t>(range[0])), ++count;
      ends.push_back(static_cast<uint32_t>(range[1])), ++count;
      search = at = range[1];
    }
    return at;
  }

 private:
  int match(std::string_view segment, size_t from, pcre2_match_data* data) const {
    auto subject = reinterpret_cast<PCRE2_SPTR>(segment.data());
    int found = PCRE2_ERROR_JIT_STACKLIMIT;
    if (jit_)
      found =
          pcre2_match(code_.get(), subject, segment.size(), from, PCRE2_NO_UTF_CHECK, data, context_.get());
    // Compiled matching has a fixed stack; the interpreter takes its memory from the heap, up to the limit.
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
      found = pcre2_match(code_.get(), subject, segment.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data,
                          context_.get());
    return found;
  }

  Code code_;
  MatchContext context_;
  bool jit_;
};

}  // namespace

Result<std::unique_ptr<PreTokenizer>> make_regex_splitter(std::string_view pattern) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF | PCRE2_UCP,
                          &error, &offset, nullptr));
  if (!code)
    return make_error(ErrorCode::data_refused, "pre_tokenizer",
                      "pattern \"{}\" does not compile at offset {}: {}", pattern, offset, message_of(error));
  bool jit = pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE) == 0;
  MatchContext context(pcre2_match_context_create(nullptr));
  if (!context) return make_error(ErrorCode::internal, "pre_tokenizer", "out of memory for a PCRE2 context");
  pcre2_set_match_limit(context.get(), kMatchLimit);
  pcre2_set_heap_limit(context.get(), kHeapLimitKiB);
  return std::unique_ptr<PreTokenizer>(
      std::make_unique<RegexSplitter>(std::move(code), std::move(context), jit));
}

}  // namespace godwit::tokenizer
