#include "chat/stop_strings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace godwit::chat {
namespace {

struct Shown {
  std::string text;
  std::optional<std::string> matched;
  bool operator==(const Shown&) const = default;
};

Shown run(const std::vector<std::string>& strings, std::string_view text, size_t piece,
          bool include = false) {
  StopStrings stop(strings, include);
  Shown out;
  for (size_t at = 0; at < text.size(); at += piece) {
    if (stop.push(text.substr(at, piece), out.text)) {
      out.matched = stop.matched();
      return out;
    }
  }
  stop.flush(out.text);
  return out;
}

// The definition, by looking at every end position in turn.
Shown by_definition(const std::vector<std::string>& strings, std::string_view text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    const std::string* longest = nullptr;
    for (const std::string& s : strings) {
      if (text.substr(0, end).ends_with(s) && (longest == nullptr || s.size() > longest->size()))
        longest = &s;
    }
    if (longest != nullptr) return {std::string(text.substr(0, end - longest->size())), *longest};
  }
  return {std::string(text), std::nullopt};
}

TEST(StopStrings, MatchesByDefinitionInEveryCut) {
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    auto word = [&](int most) {
      std::string s(1 + random() % static_cast<unsigned>(most), 'a');
      for (char& c : s) c = static_cast<char>('a' + random() % 2);
      return s;
    };
    std::vector<std::string> strings(1 + random() % 3);
    for (std::string& s : strings) s = word(5);
    std::string text = word(14);
    Shown expected = by_definition(strings, text);
    for (size_t piece = 1; piece <= text.size(); ++piece) {
      EXPECT_EQ(run(strings, text, piece), expected) << text << " " << strings[0];
    }
  }
}

TEST(StopStrings, HoldsBackNoMoreThanAPossibleBeginning) {
  StopStrings stop({"\n\nUser:"}, false);
  std::string out;
  EXPECT_FALSE(stop.push("one\n", out));
  EXPECT_EQ(out, "one");
  EXPECT_FALSE(stop.push("two\n\nUse", out));
  EXPECT_EQ(out, "one\ntwo");
  EXPECT_FALSE(stop.push("d", out));
  EXPECT_EQ(out, "one\ntwo\n\nUsed");
}

TEST(StopStrings, MayShowTheMatch) {
  EXPECT_EQ(run({"END"}, "a END b", 2, true).text, "a END");
}

TEST(StopStrings, TakesLinearTimeOnPeriodicText) {
  std::string needle(2000, 'a');
  needle += 'b';
  EXPECT_EQ(run({needle}, std::string(4'000'000, 'a'), 100).text.size(), 4'000'000u);
}

}  // namespace
}  // namespace godwit::chat
