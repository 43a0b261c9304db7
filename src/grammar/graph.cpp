#include "grammar/graph.h"

#include <algorithm>

#include "base/assert.h"
#include "grammar/nfa.h"
#include "grammar/number_dfa.h"

namespace godwit::grammar {
namespace {

// Indentation after a line break; deeper than any style needs at the depth limit, and still an end to blank
// loops.
constexpr unsigned kMaxIndent = 128;
constexpr unsigned kMaxTabs = 64;

// `before`, a gap, `after`.
ByteDfa around_gap(std::string_view before, std::string_view after) {
  Nfa nfa;
  const uint32_t start = nfa.add_state();
  const uint32_t accept = nfa.add_state();
  const uint32_t gap = nfa.add_state();
  const uint32_t end = nfa.add_state();
  nfa.text(start, before, gap);
  nfa.epsilon(gap, end);
  nfa.text(gap, " ", end);
  auto indent = [&](uint8_t blank, unsigned count) {
    uint32_t at = nfa.add_state();
    nfa.text(gap, "\n", at);
    for (unsigned i = 0; i < count; ++i) {
      nfa.epsilon(at, end);
      const uint32_t next = nfa.add_state();
      nfa.edge(at, blank, blank, next);
      at = next;
    }
    nfa.epsilon(at, end);
  };
  indent(' ', kMaxIndent);
  indent('\t', kMaxTabs);
  nfa.text(end, after, accept);
  return nfa.determinize(start, accept, {}).value();
}

}  // namespace

Graph::Graph(const GraphLimits& limits)
    : Graph([]() -> const Graph& {
        static const Graph common{Empty{}};  // made once: every grammar begins with it
        return common;
      }()) {
  limits_ = limits;
  dfa_work_ = limits.dfa_work;
}

Graph::Graph(Empty) {
  Nfa string;
  const uint32_t start = string.add_state();
  const uint32_t accept = string.add_state();
  const uint32_t body = string.add_state();
  string.text(start, "\"", body);
  string.character(body, CodePointSet::all(), Spelling::json_any, body);
  string.text(body, "\"", accept);
  common_.string = add_dfa(string.determinize(start, accept, {}).value());
  common_.string_body = dfa_of(common_.string).next(0, '"');
  Nfa plain;
  const uint32_t all = plain.add_state();
  plain.character(all, CodePointSet::all(), Spelling::plain, all);
  common_.plain = add_dfa(plain.determinize(all, all, {}).value());
  common_.gap = add_dfa(around_gap("", ""));
  common_.comma = add_dfa(around_gap(",", ""));
  common_.open_object = add_dfa(around_gap("{", ""));
  common_.open_array = add_dfa(around_gap("[", ""));
  common_.gap_close_object = add_dfa(around_gap("", "}"));
  common_.gap_close_array = add_dfa(around_gap("", "]"));
  common_.close_object = literal("}");
  common_.close_array = literal("]");
  common_.number = add_dfa(*number_dfa({}));
  common_.integer = add_dfa(*number_dfa({.integer = true}));
  common_.boolean = add_dfa(ByteDfa::literals({"true", "false"}));
  common_.null = literal("null");
  common_.empty = sequence({});
}

uint32_t Graph::add(Node node) {
  nodes_.push_back(std::move(node));
  return static_cast<uint32_t>(nodes_.size() - 1);
}

uint32_t Graph::add_dfa(ByteDfa dfa) {
  dfa_states_ += dfa.size();
  dfas_.push_back(std::make_shared<const ByteDfa>(std::move(dfa)));
  Node node{NodeKind::dfa};
  node.dfa = static_cast<uint32_t>(dfas_.size() - 1);
  return add(std::move(node));
}

uint32_t Graph::sequence(std::vector<uint32_t> children) {
  Node node{NodeKind::sequence};
  node.children = std::move(children);
  return add(std::move(node));
}

uint32_t Graph::choice(std::vector<uint32_t> children) {
  Node node{NodeKind::choice};
  node.children = std::move(children);
  return add(std::move(node));
}

uint32_t Graph::token(int32_t id) {
  Node node{NodeKind::token};
  node.token = id;
  return add(std::move(node));
}

uint32_t Graph::counted(uint64_t min, uint64_t max, bool quoted) {
  Node node{NodeKind::counted};
  node.dfa = at(quoted ? common_.string : common_.plain).dfa;
  node.body = quoted ? common_.string_body : 0;
  node.min = min;
  node.max = max;
  return add(std::move(node));
}

uint32_t Graph::height_of(const Node& node) const {
  auto height = [this](uint32_t child) { return child == kNone ? kNone : nodes_[child].height; };
  uint32_t out = 0;
  switch (node.kind) {
    case NodeKind::dfa:
    case NodeKind::counted:
    case NodeKind::token:
      return 0;
    case NodeKind::sequence:
      for (uint32_t child : node.children) out = std::max(out, height(child));
      return out;
    case NodeKind::choice:
      out = kNone;
      for (uint32_t child : node.children) out = std::min(out, height(child));
      return out;
    case NodeKind::members:
    case NodeKind::arguments:
      for (size_t i = 0; i < node.children.size(); ++i) {
        if (node.required[i]) out = std::max(out, height(node.children[i]));
      }
      break;
    case NodeKind::items:
      for (size_t i = 0; i < node.children.size() && i < node.min; ++i)
        out = std::max(out, height(node.children[i]));
      if (node.min > node.children.size()) out = std::max(out, height(node.rest));
      break;
  }
  if (node.kind != NodeKind::arguments && out != kNone) ++out;
  return out > limits_.depth ? kNone : out;
}

bool Graph::finish() {
  GODWIT_ASSERT(root != kNone);
  std::vector<std::vector<uint32_t>> parents(nodes_.size());
  std::vector<uint32_t> queue;
  for (uint32_t i = 0; i < size(); ++i) {
    for (uint32_t child : nodes_[i].children) parents[child].push_back(i);
    if (nodes_[i].rest != kNone) parents[nodes_[i].rest].push_back(i);
    queue.push_back(i);
  }
  // Heights only fall, and take at most depth + 2 values, so this ends after a bounded number of visits.
  while (!queue.empty()) {
    const uint32_t i = queue.back();
    queue.pop_back();
    const uint32_t height = height_of(nodes_[i]);
    if (height >= nodes_[i].height) continue;
    nodes_[i].height = height;
    queue.insert(queue.end(), parents[i].begin(), parents[i].end());
  }
  return nodes_[root].height != kNone;
}

}  // namespace godwit::grammar
