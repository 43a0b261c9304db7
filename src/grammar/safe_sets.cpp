// Which characters can follow a state in any number and order (SafeSet).
#include <algorithm>
#include <array>
#include <bit>

#include "grammar/byte_dfa.h"

namespace godwit::grammar {
namespace {

constexpr unsigned kSymbols = 128 + 0xF4 - 0xC2 + 1;  // ASCII, then the first bytes of longer characters
constexpr size_t kMaxReached = 16;                    // states; beyond them a set is not worth its search
constexpr unsigned kMaxPasses = 4;
constexpr unsigned kMaxSearches = 256;  // states of one automaton that are looked at

using Targets = std::vector<uint32_t>;  // ascending

// The states after each symbol; empty when some character of the symbol fails.
class Symbols {
 public:
  explicit Symbols(const ByteDfa& dfa) : dfa_(dfa), known_(dfa.size()) {}

  const Targets& of(uint32_t state, unsigned symbol) {
    auto& row = known_[state];
    if (row.empty()) {
      row.resize(kSymbols);
      for (unsigned s = 0; s < kSymbols; ++s) fill(state, s, row[s]);
    }
    return row[symbol];
  }

 private:
  void fill(uint32_t state, unsigned symbol, Targets& out) {
    const auto byte = static_cast<uint8_t>(symbol < 128 ? symbol : symbol - 128 + 0xC2);
    const uint32_t next = dfa_.next(state, byte);
    if (next == kNone) return;
    if (symbol < 128) {
      out.push_back(next);
      return;
    }
    // The well-formed sequences of Unicode table 3-7.
    const uint8_t lo = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
    const uint8_t hi = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
    if (!follow(next, lo, hi, byte < 0xE0 ? 0 : byte < 0xF0 ? 1 : 2, out)) out.clear();
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
  }

  // Adds the states after every byte in [lo, hi] and `more` continuation bytes; false when one of them fails.
  bool follow(uint32_t from, uint8_t lo, uint8_t hi, unsigned more, Targets& out) {
    unsigned byte = lo;
    for (const ByteEdge& edge : dfa_.at(from).edges) {
      if (edge.hi < byte) continue;
      if (edge.lo > byte || out.size() > kMaxReached) return false;
      if (more == 0) {
        out.push_back(edge.target);
      } else if (!follow(edge.target, 0x80, 0xBF, more - 1, out)) {
        return false;
      }
      if (edge.hi >= hi) return true;
      byte = edge.hi + 1u;
    }
    return false;
  }

  const ByteDfa& dfa_;
  std::vector<std::vector<Targets>> known_;  // [states][kSymbols], made when asked for
};

// Strongly connected components: a safe set that is not empty keeps a state within its own.
std::vector<uint32_t> components(const ByteDfa& dfa) {
  const uint32_t size = dfa.size();
  std::vector<uint32_t> component(size, kNone);
  std::vector<uint32_t> index(size, kNone);
  std::vector<uint32_t> low(size, 0);
  std::vector<uint32_t> open;                      // Tarjan's stack
  std::vector<std::pair<uint32_t, size_t>> calls;  // state, edges done: recursion as a list
  uint32_t next = 0;
  for (uint32_t root = 0; root < size; ++root) {
    if (index[root] != kNone) continue;
    calls.emplace_back(root, 0);
    while (!calls.empty()) {
      auto& [state, done] = calls.back();
      if (done == 0) {
        index[state] = low[state] = next++;
        open.push_back(state);
      }
      const auto& edges = dfa.at(state).edges;
      if (done < edges.size()) {
        const uint32_t target = edges[done++].target;
        if (index[target] == kNone) {
          calls.emplace_back(target, 0);
        } else if (component[target] == kNone) {
          low[state] = std::min(low[state], index[target]);
        }
        continue;
      }
      const uint32_t finished = state;
      if (low[finished] == index[finished]) {
        uint32_t member = kNone;
        do {
          member = open.back();
          open.pop_back();
          component[member] = finished;
        } while (member != finished);
      }
      calls.pop_back();
      if (!calls.empty()) low[calls.back().first] = std::min(low[calls.back().first], low[finished]);
    }
  }
  return component;
}

using SymbolSet = std::array<bool, kSymbols>;

}  // namespace

void ByteDfa::find_safe_sets() {
  const std::vector<uint32_t> component = components(*this);
  Symbols symbols(*this);
  auto stays = [&](uint32_t from, unsigned symbol) {
    const Targets& targets = symbols.of(from, symbol);
    return !targets.empty() && std::all_of(targets.begin(), targets.end(),
                                           [&](uint32_t t) { return component[t] == component[from]; });
  };
  std::vector<uint32_t> sizes(size(), kNone);  // how many symbols stay
  auto size_of = [&](uint32_t state) {
    if (sizes[state] == kNone) {
      sizes[state] = 0;
      for (unsigned s = 0; s < kSymbols; ++s) sizes[state] += stays(state, s) ? 1 : 0;
    }
    return sizes[state];
  };
  unsigned searches = 0;
  for (uint32_t start = 0; start < size() && searches < kMaxSearches; ++start) {
    const bool ascii_edge = std::any_of(
        states_[start].edges.begin(), states_[start].edges.end(),
        [&](const ByteEdge& e) { return e.lo < 0x80 && component[e.target] == component[start]; });
    if (!ascii_edge) continue;  // also every state within a character
    ++searches;
    // A symbol after which little may follow (a backslash in a string) would cost the set more than it adds.
    SymbolSet set{};
    for (unsigned s = 0; s < kSymbols; ++s) {
      if (!stays(start, s)) continue;
      const Targets& targets = symbols.of(start, s);
      set[s] = std::all_of(targets.begin(), targets.end(),
                           [&](uint32_t t) { return size_of(t) * 2 >= size_of(start); });
    }
    // Drop symbols that fail in a state that the others reach, until none does.
    bool settled = false;
    for (unsigned pass = 0; pass < kMaxPasses && !settled; ++pass) {
      settled = true;
      Targets reached{start};
      for (size_t i = 0; i < reached.size() && reached.size() <= kMaxReached; ++i) {
        for (unsigned s = 0; s < kSymbols; ++s) {
          if (!set[s]) continue;
          if (!stays(reached[i], s)) {
            set[s] = false;
            settled = false;
            continue;
          }
          for (uint32_t t : symbols.of(reached[i], s)) {
            if (std::find(reached.begin(), reached.end(), t) == reached.end()) reached.push_back(t);
          }
        }
      }
      settled = settled && reached.size() <= kMaxReached;
    }
    for (unsigned s = 0; s < kSymbols && settled; ++s) {
      if (set[s]) states_[start].safe.add(static_cast<uint8_t>(s < 128 ? s : s - 128 + 0xC2));
    }
  }
}

}  // namespace godwit::grammar
