// What a selftest found: every comparison made, and each one that failed in words.
#pragma once

#include <fmt/core.h>

#include <string>
#include <vector>

namespace godwit::selftest {

struct Report {
  int64_t checks = 0;
  std::vector<std::string> failures;
  std::vector<std::string> notes;  // measured deviations, for the reader

  template <class... Args>
  void check(bool holds, fmt::format_string<Args...> what, Args&&... args) {
    ++checks;
    if (!holds) failures.push_back(fmt::format(what, std::forward<Args>(args)...));
  }
  template <class... Args>
  void note(fmt::format_string<Args...> what, Args&&... args) {
    notes.push_back(fmt::format(what, std::forward<Args>(args)...));
  }
  // A test that compared nothing has failed.
  bool passed() const { return checks > 0 && failures.empty(); }
};

}  // namespace godwit::selftest
