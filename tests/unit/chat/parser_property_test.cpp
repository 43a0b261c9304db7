// For every way of cutting an output into deliveries the client gets the same (api spec §3.5), and nothing a
// model can write breaks the promises of a message.
#include <gtest/gtest.h>

#include <random>

#include "byte_tokenizer.h"
#include "chat/id_front_end.h"
#include "samples.h"

namespace godwit::chat {
namespace {

struct Delivery {
  std::vector<Delta> deltas;
  Message message;
  Finish finish;
  int64_t reasoning_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t roll_backs = 0;
};

IdFrontEnd front_end(const ParserOptions& options) {
  auto tokenizer = byte_tokenizer();
  auto ids = tokenizer::find_control_ids(*tokenizer);
  return IdFrontEnd(tokenizer, ids, {.stop_ids = {ids.end_of_text, ids.user, ids.observation}}, options);
}

// Delivers ids in bursts of the sizes that `next` gives.
template <class Next>
Delivery run(const std::vector<int32_t>& ids, const ParserOptions& options, EndReason reason, Next next) {
  Delivery out;
  IdFrontEnd front = front_end(options);
  auto collect = [&] {
    for (Delta& delta : front.parser().take()) {
      apply(out.message, delta);
      out.deltas.push_back(std::move(delta));
    }
  };
  for (size_t at = 0; at < ids.size();) {
    for (size_t n = next(); n > 0 && at < ids.size(); --n) front.push(ids[at++]);
    collect();
  }
  front.end(reason);
  collect();
  out.finish = front.parser().finish();
  out.reasoning_tokens = front.parser().reasoning_tokens();
  out.completion_tokens = front.completion_tokens();
  out.roll_backs = front.parser().roll_backs();
  return out;
}

// Neighbouring pieces joined: what the order of events is, without where they were cut.
std::vector<Delta> joined(const std::vector<Delta>& deltas) {
  std::vector<Delta> out;
  for (const Delta& d : deltas) {
    if (!out.empty() && out.back().kind == d.kind && out.back().call == d.call && !d.text.empty()) {
      out.back().text += d.text;
    } else {
      out.push_back(d);
    }
  }
  return out;
}

void expect_same(const Delivery& a, const Delivery& b, std::string_view sample) {
  std::vector<Delta> x = joined(a.deltas), y = joined(b.deltas);
  ASSERT_EQ(x.size(), y.size()) << sample;
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(x[i].kind, y[i].kind) << sample;
    EXPECT_EQ(x[i].text, y[i].text) << sample;
    EXPECT_EQ(x[i].call, y[i].call) << sample;
    EXPECT_EQ(x[i].id, y[i].id) << sample;
    EXPECT_EQ(x[i].name, y[i].name) << sample;
    EXPECT_EQ(x[i].truncated, y[i].truncated) << sample;
  }
  EXPECT_EQ(a.finish.reason, b.finish.reason) << sample;
  EXPECT_EQ(a.finish.stop_string, b.finish.stop_string) << sample;
  EXPECT_EQ(a.reasoning_tokens, b.reasoning_tokens) << sample;
  EXPECT_EQ(a.completion_tokens, b.completion_tokens) << sample;
}

// What holds for every output whatever it says.
void expect_promises(const Delivery& run, std::string_view sample) {
  int open = -1, calls = 0;
  for (const Delta& d : run.deltas) {
    switch (d.kind) {
      case Delta::Kind::call_begin:
        EXPECT_EQ(open, -1) << sample;
        EXPECT_EQ(d.call, calls++) << sample;
        EXPECT_FALSE(d.name.empty() || d.id.empty()) << sample;
        open = d.call;
        break;
      case Delta::Kind::call_end:
        EXPECT_EQ(d.call, open) << sample;
        open = -1;
        break;
      case Delta::Kind::call_arguments:
        EXPECT_EQ(d.call, open) << sample;
        EXPECT_FALSE(d.text.empty()) << sample;
        break;
      default:
        EXPECT_EQ(open, -1) << sample;
        EXPECT_FALSE(d.text.empty()) << sample;
        EXPECT_TRUE(tokenizer::is_utf8(d.text)) << sample;
    }
  }
  EXPECT_EQ(open, -1) << sample;
  int complete = 0;
  for (const ToolCall& call : run.message.tool_calls) {
    auto arguments = parse_json(call.arguments);
    ASSERT_TRUE(arguments.ok()) << sample << "\n" << call.arguments;
    EXPECT_TRUE(arguments->is_object()) << sample;
    complete += !call.truncated;
  }
  EXPECT_TRUE(run.finish.reason != FinishReason::tool_calls || complete > 0) << sample;
}

std::vector<int32_t> encoded(std::string_view text) {
  auto ids = byte_tokenizer()->encode(text);
  EXPECT_TRUE(ids.ok());
  return *ids;
}

TEST(ParserProperty, EveryCutOfEverySampleGivesTheSame) {
  auto list = samples();
  ASSERT_GE(list.size(), 40u);
  for (const Sample& sample : list) {
    // Encoding would repair an unfinished character: such ids are the bytes themselves.
    std::string_view text = sample.text;
    std::vector<int32_t> ids = encoded(text.substr(0, text.size() - text.ends_with('\xC3')));
    if (text.ends_with('\xC3')) ids.push_back(0xC3);
    Delivery whole = run(ids, sample.options, sample.reason, [&] { return ids.size() + 1; });
    expect_promises(whole, text);
    expect_same(whole, run(ids, sample.options, sample.reason, [] { return 1; }), text);
    for (size_t cut = 1; cut < ids.size(); ++cut) {
      size_t pieces = 0;
      expect_same(whole,
                  run(ids, sample.options, sample.reason, [&] { return pieces++ == 0 ? cut : ids.size(); }),
                  text);
    }
    std::mt19937 random(static_cast<unsigned>(ids.size()));
    for (int round = 0; round < 20; ++round) {
      expect_same(whole, run(ids, sample.options, sample.reason, [&] { return 1 + random() % 6; }), text);
    }
    // The text form of the same output, byte by byte.
    Outcome lexed = parse_pieces(bytes_of(text), sample.options, sample.reason);
    Delivery as_text{.deltas = lexed.deltas,
                     .message = lexed.message,
                     .finish = lexed.finish,
                     .reasoning_tokens = whole.reasoning_tokens,
                     .completion_tokens = whole.completion_tokens};
    expect_same(whole, as_text, text);
  }
}

TEST(ParserProperty, SpelledTagsAreTextWhenIdsAreAtHand) {
  std::string_view text = "<think><tool_call>now</tool_call></think>";
  std::vector<int32_t> ids(text.begin(), text.end());
  EXPECT_EQ(run(ids, with_tools(), EndReason::stop, [] { return 1; }).message.content, text);
}

TEST(ParserProperty, TagSoupNeverBreaksAPromise) {
  std::mt19937 random(20);
  const std::string_view kWords[] = {
      "now", "get", "get_weather", "write", "city", "days", "text",    "lines", "mode", " ",
      "\n",  "12",  "\"x",         "{'a':", "ü",    "🧠", "unknown", "null",  "STOP"};
  auto tokenizer = byte_tokenizer();
  const auto ids_of = tokenizer::find_control_ids(*tokenizer);
  int64_t calls = 0, roll_backs = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::vector<int32_t> ids;
    // Half of the rounds lean to well-formed calls, or arguments would rarely be reached.
    bool shaped = random() % 2 == 0;
    for (size_t n = random() % 24; n > 0; --n) {
      unsigned kind = random() % 10;
      if (shaped && kind < 3) {
        std::string call = "<tool_call>" + std::string(kWords[random() % 4]) + "<arg_key>" +
                           std::string(kWords[4 + random() % 5]) + "</arg_key><arg_value>";
        std::vector<int32_t> more = encoded(call);
        ids.insert(ids.end(), more.begin(), more.end());
      } else if (kind < 6) {
        ids.push_back(ids_of.think_open + static_cast<int32_t>(random() % kControlText.size()));
      } else if (kind < 9) {
        for (char c : kWords[random() % std::size(kWords)]) ids.push_back(static_cast<unsigned char>(c));
      } else {
        int32_t byte = static_cast<int32_t>(random() % 256);
        ids.push_back(byte == '<' ? ' ' : byte);
      }
    }
    ParserOptions options{.thinking = random() % 2 == 0, .tools = sample_tools()};
    options.parallel_tool_calls = random() % 4 != 0;
    if (random() % 2 == 0) options.stop = {"STOP", "x "};
    EndReason reason = random() % 2 == 0 ? EndReason::stop : EndReason::length;
    Delivery whole = run(ids, options, reason, [&] { return ids.size() + 1; });
    std::string shown = fmt::format("round {}", round);
    expect_promises(whole, shown);
    expect_same(whole, run(ids, options, reason, [&] { return 1 + random() % 6; }), shown);
    if (whole.roll_backs == 0) {
      EXPECT_EQ(whole.message.content.find('<'), std::string::npos) << shown;
      EXPECT_EQ(whole.message.reasoning.find('<'), std::string::npos) << shown;
    }
    calls += static_cast<int64_t>(whole.message.tool_calls.size());
    roll_backs += whole.roll_backs;
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(calls, 10'000);
  EXPECT_GT(roll_backs, 1'000);
}

}  // namespace
}  // namespace godwit::chat
