#include "bpe_trainer.h"

#include <algorithm>
#include <queue>

namespace godwit::tools {
namespace {

struct Word {
  std::vector<int32_t> ids;
  int64_t count;
};

struct Pair {
  int64_t count = 0;
  std::vector<uint32_t> words;  // where it occurred; may repeat or be out of date
};

struct Candidate {
  int64_t count;
  uint64_t pair;  // left << 32 | right
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

constexpr uint64_t key_of(int32_t left, int32_t right) {
  return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
}

class Trainer {
 public:
  explicit Trainer(const std::vector<std::pair<std::string, int64_t>>& words) {
    for (unsigned byte = 0; byte < 256; ++byte) tokens_.emplace_back(1, static_cast<char>(byte));
    for (const auto& [text, count] : words) {
      Word word{{}, count};
      for (char c : text) word.ids.push_back(static_cast<unsigned char>(c));
      words_.push_back(std::move(word));
    }
    for (uint32_t w = 0; w < words_.size(); ++w) {
      const auto& ids = words_[w].ids;
      for (size_t i = 0; i + 1 < ids.size(); ++i) change(key_of(ids[i], ids[i + 1]), words_[w].count, w);
    }
    push_changed();
  }

  std::vector<std::string> run(size_t size) {
    while (tokens_.size() < size && !heap_.empty()) {
      Candidate top = heap_.top();
      heap_.pop();
      auto found = pairs_.find(top.pair);
      if (found == pairs_.end() || found->second.count != top.count) continue;  // pushed again since
      if (top.count < 2) break;
      merge(top.pair);
      push_changed();
    }
    return std::move(tokens_);
  }

 private:
  void change(uint64_t pair, int64_t by, uint32_t word) {
    Pair& entry = pairs_[pair];
    entry.count += by;
    if (by > 0 && (entry.words.empty() || entry.words.back() != word)) entry.words.push_back(word);
    changed_.push_back(pair);
  }

  void push_changed() {
    std::sort(changed_.begin(), changed_.end());
    changed_.erase(std::unique(changed_.begin(), changed_.end()), changed_.end());
    for (uint64_t pair : changed_) {
      auto found = pairs_.find(pair);
      if (found->second.count > 0) {
        heap_.push({found->second.count, pair});
      } else {
        pairs_.erase(found);
      }
    }
    changed_.clear();
  }

  void merge(uint64_t pair) {
    auto left = static_cast<int32_t>(pair >> 32);
    auto right = static_cast<int32_t>(pair & UINT32_MAX);
    auto made = static_cast<int32_t>(tokens_.size());
    tokens_.push_back(tokens_[static_cast<size_t>(left)] + tokens_[static_cast<size_t>(right)]);
    std::vector<uint32_t> where = std::move(pairs_[pair].words);
    for (uint32_t w : where) {
      auto& ids = words_[w].ids;
      int64_t count = words_[w].count;
      size_t kept = 0;
      for (size_t i = 0; i < ids.size(); ++i) {
        if (i + 1 == ids.size() || ids[i] != left || ids[i + 1] != right) {
          ids[kept++] = ids[i];
          continue;
        }
        change(pair, -count, w);
        if (kept > 0) {
          change(key_of(ids[kept - 1], left), -count, w);
          change(key_of(ids[kept - 1], made), count, w);
        }
        if (i + 2 < ids.size()) {
          change(key_of(right, ids[i + 2]), -count, w);
          change(key_of(made, ids[i + 2]), count, w);
        }
        ids[kept++] = made;
        ++i;
      }
      ids.resize(kept);
    }
  }

  std::vector<std::string> tokens_;
  std::vector<Word> words_;
  std::unordered_map<uint64_t, Pair> pairs_;
  std::priority_queue<Candidate> heap_;
  std::vector<uint64_t> changed_;
};

}  // namespace

void WordCounts::add(std::string_view word) {
  auto found = counts_.find(word);
  if (found != counts_.end()) {
    ++found->second;
  } else {
    counts_.emplace(word, 1);
  }
}

std::vector<std::pair<std::string, int64_t>> WordCounts::words(int64_t least) const {
  std::vector<std::pair<std::string, int64_t>> out;
  for (const auto& [word, count] : counts_) {
    if (count >= least) out.emplace_back(word, count);
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  return out;
}

std::vector<std::string> train_tokens(const std::vector<std::pair<std::string, int64_t>>& words,
                                      size_t size) {
  return Trainer(words).run(size);
}

}  // namespace godwit::tools
