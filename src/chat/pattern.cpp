#include "chat/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <memory>

namespace godwit::chat {
namespace {

constexpr size_t kMaxPattern = 1024;     // bytes
constexpr uint32_t kMatchLimit = 20000;  // PCRE2 match() calls
constexpr uint32_t kHeapLimit = 1024;    // KiB

template <auto free>
struct Free {
  template <class T>
  void operator()(T* p) const {
    free(p);
  }
};

}  // namespace

bool pattern_matches(std::string_view pattern, std::string_view text) {
  if (pattern.size() > kMaxPattern) return false;
  int error = 0;
  size_t offset = 0;
  std::unique_ptr<pcre2_code, Free<pcre2_code_free>> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C, &error, &offset, nullptr));
  if (!code) return false;
  std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>> data(
      pcre2_match_data_create_from_pattern(code.get(), nullptr));
  std::unique_ptr<pcre2_match_context, Free<pcre2_match_context_free>> context(
      pcre2_match_context_create(nullptr));
  if (!data || !context) return false;
  pcre2_set_match_limit(context.get(), kMatchLimit);
  pcre2_set_heap_limit(context.get(), kHeapLimit);
  return pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0, data.get(),
                     context.get()) >= 0;
}

}  // namespace godwit::chat
