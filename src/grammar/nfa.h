// Nfa: byte automata as they are written down, made deterministic within limits.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "grammar/byte_dfa.h"
#include "grammar/code_points.h"

namespace godwit::grammar {

struct DfaLimits {
  size_t nfa_states = 50'000;
  size_t states = 4'096;
  size_t work = 4'000'000;   // steps of the subset construction
  size_t* budget = nullptr;  // steps left to all automata of a grammar; what one takes is subtracted
};

// How a character is written where the automaton runs.
enum class Spelling : uint8_t {
  plain,  // UTF-8
  json,   // inside a JSON string, each character in one way: as itself where JSON lets it, else the shortest
          // escape
  json_any,  // inside a JSON string, with every escape JSON has; no lone surrogates
};

class Nfa {
 public:
  uint32_t add_state();
  void epsilon(uint32_t from, uint32_t to) { states_[from].epsilon.push_back(to); }
  void edge(uint32_t from, uint8_t lo, uint8_t hi, uint32_t to) {
    states_[from].edges.push_back({lo, hi, to});
  }
  void text(uint32_t from, std::string_view bytes, uint32_t to);
  // One character of `set`.
  void character(uint32_t from, const CodePointSet& set, Spelling spelling, uint32_t to);
  size_t size() const { return states_.size(); }

  // Errors: invalid_request, naming the limit that was passed; also when nothing matches.
  Result<ByteDfa> determinize(uint32_t start, uint32_t accept, const DfaLimits& limits) const;

 private:
  struct State {
    std::vector<ByteEdge> edges;
    std::vector<uint32_t> epsilon;
  };
  std::vector<uint32_t> closure(std::vector<uint32_t> set, std::vector<uint32_t>& marks, uint32_t mark,
                                size_t& work) const;
  void utf8(uint32_t from, uint32_t lo, uint32_t hi, uint32_t to);
  void any_escape(uint32_t from, uint32_t to);

  std::vector<State> states_;
};

}  // namespace godwit::grammar
