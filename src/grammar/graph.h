// Graph: a grammar as a graph of nodes over byte automata and control ids. Cycles are recursion.
//
// What each node matches, and what the number beside it (Item::arg, state.h) counts while it is being
// matched:
//   dfa        a byte automaton                                 its state
//   counted    characters, min to max of them                   automaton state | count << 16
//   sequence   its children in order                            children done
//   choice     one of its children                              -
//   members    the rest of a JSON object after '{'              next member << 2 | after a comma << 1 | not
//   the first items      the rest of a JSON array after '['               items done << 1 | after a comma
//   arguments  argument pairs of a tool call, each once         bit i: argument i is done
//   token      one control id                                   -
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "grammar/byte_dfa.h"

namespace godwit::grammar {

enum class NodeKind : uint8_t { dfa, counted, sequence, choice, members, items, arguments, token };

constexpr uint64_t kUnlimited = UINT64_MAX;

struct Node {
  NodeKind kind = NodeKind::sequence;
  uint32_t dfa = kNone;       // dfa, counted: index into Graph::dfas
  uint32_t body = 0;          // counted: the automaton's state between characters
  int32_t token = -1;         // token
  uint64_t min = 0;           // counted, items
  uint64_t max = kUnlimited;  // counted, items
  std::vector<uint32_t>
      children;  // members: key and value of each; items: the first values; arguments: whole pairs
  std::vector<char> required;  // members, arguments: [children]
  uint32_t rest = kNone;    // members: further key and value; items: further values; arguments: further pairs
  uint32_t height = kNone;  // containers that its smallest match nests; kNone: it has no finite match
};

// Limits of one grammar; what passes one is refused with its name.
struct GraphLimits {
  size_t nodes = 20'000;
  size_t dfa_states = 200'000;  // of all automata
  size_t dfa_work = 8'000'000;  // steps of making them from expressions
  uint32_t depth = 64;          // nested containers in what is generated
};

class Graph {
 public:
  // JSON punctuation, shared by all objects and arrays. A gap is where JSON allows white space: here at most
  // one blank, or one line break and its indentation (api spec §3.9).
  struct Common {
    uint32_t comma;         // node: ',' gap
    uint32_t open_object;   // node: '{' gap
    uint32_t open_array;    // node: '[' gap
    uint32_t close_object;  // node: '}', right after the opening gap
    uint32_t close_array;
    uint32_t gap_close_object;  // node: gap '}'
    uint32_t gap_close_array;
    uint32_t gap;
    uint32_t string;       // node: any JSON string
    uint32_t string_body;  // its automaton's state between two characters
    uint32_t number;
    uint32_t integer;
    uint32_t boolean;
    uint32_t null;
    uint32_t plain;  // node: any text
    uint32_t empty;  // node: nothing
  };

  explicit Graph(const GraphLimits& limits = {});

  const Common& common() const { return common_; }
  const Node& at(uint32_t node) const { return nodes_[node]; }
  const ByteDfa& dfa(uint32_t index) const { return *dfas_[index]; }
  const ByteDfa& dfa_of(uint32_t node) const { return dfa(nodes_[node].dfa); }
  uint32_t size() const { return static_cast<uint32_t>(nodes_.size()); }
  const GraphLimits& limits() const { return limits_; }
  // To be spent by what makes automata.
  size_t* dfa_work() { return &dfa_work_; }
  bool within_limits() const { return nodes_.size() <= limits_.nodes && dfa_states_ <= limits_.dfa_states; }

  uint32_t add(Node node);
  void set(uint32_t node, Node content) { nodes_[node] = std::move(content); }
  uint32_t add_dfa(ByteDfa dfa);
  uint32_t literal(std::string text) { return add_dfa(ByteDfa::literals({std::move(text)})); }
  uint32_t sequence(std::vector<uint32_t> children);
  uint32_t choice(std::vector<uint32_t> children);
  uint32_t token(int32_t id);
  // A string of min to max characters: a quoted JSON string, or plain text.
  uint32_t counted(uint64_t min, uint64_t max, bool quoted);

  // Computes the heights below `root`. False when nothing finite matches it within the depth limit.
  bool finish();
  uint32_t root = kNone;

 private:
  struct Empty {};
  explicit Graph(Empty);  // with common() only
  uint32_t height_of(const Node& node) const;

  GraphLimits limits_;
  std::vector<Node> nodes_;
  std::vector<std::shared_ptr<const ByteDfa>> dfas_;
  size_t dfa_states_ = 0;
  size_t dfa_work_ = 0;  // left
  Common common_{};
};

}  // namespace godwit::grammar
