// Every kind of bad request: its status, the field it names, the limit it states; and the server lives on.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <tuple>

#include "bad_requests.h"
#include "harness.h"

namespace godwit::server::testing {
namespace {

using ::testing::HasSubstr;

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kText = "/v1/completions";
constexpr int kWaitMs = 200'000;  // a body of millions of values under a sanitizer, on a loaded machine

Script hello(const engine::Request&) {
  return {};
}

std::vector<BadTable> tables() {
  return {bad_chat_bodies(),  bad_chat_messages(), bad_chat_fields(), bad_structured(),
          bad_completions(),  bad_tokenize(),      bad_detokenize(),  bad_messages(),
          bad_count_tokens(), bad_responses(),     bad_embeddings(),  bad_http()};
}

// "messages[1].content[0]" ▶ "messages[].content[]".
std::string without_indices(std::string_view path) {
  std::string out;
  bool inside = false;
  for (const char c : path) {
    if (c == ']') inside = false;
    if (!inside) out.push_back(c);
    if (c == '[') inside = true;
  }
  return out;
}

// A completion that gets one token each time it is asked for, while others misbehave.
class SlowStream {
 public:
  explicit SlowStream(Harness& harness) : service_(*harness.service), client_(harness.port()) {
    service_.allowed_ = 0;
    client_.send(request_text("POST", kText, R"({"prompt":"stream","max_tokens":4000,"stream":true})"));
  }

  // The text of the token that the engine makes; "" when it does not arrive.
  std::string next() {
    ++service_.allowed_;
    for (;;) {
      const size_t start = received_.find("data: ");
      const size_t end = received_.find("\n\n", start);
      if (start != std::string::npos && end != std::string::npos) {
        const auto event = parse_json(std::string_view(received_).substr(start + 6, end - start - 6));
        received_.erase(0, end + 2);
        if (!event) return "";
        const std::string& text = event->find("choices")->as_array().at(0).find("text")->as_string();
        if (!text.empty()) return text;
        continue;
      }
      const std::string some = client_.receive_some(kWaitMs);
      if (some.empty()) return "";
      received_ += some;
    }
  }

 private:
  FakeService& service_;
  Client client_;
  std::string received_;
};

Answer send(Harness& harness, const BadTable& table, const BadRequest& row) {
  Client client(harness.port());
  client.send(table.path.empty() ? row.send
                                 : request_text("POST", table.path, row.send,
                                                row.send.empty() ? "Content-Length: 0\r\n" : ""));
  return client.receive(kWaitMs);
}

void check(const BadTable& table, const BadRequest& row, const Answer& answer) {
  EXPECT_EQ(answer.status, row.status);
  EXPECT_FALSE(answer.header("x-request-id").empty());
  EXPECT_LT(answer.body.size(), 1000u) << "an answer must not be as long as what was sent";
  const Json json = answer.json();
  const Json* error = json.find("error");
  ASSERT_NE(error, nullptr);
  const std::string& message = error->find("message")->as_string();
  EXPECT_THAT(message, HasSubstr(row.says));
  EXPECT_GT(message.size(), 15u);
  const bool member = !row.field.starts_with('(');
  if (table.shape == ErrorShape::anthropic) {
    EXPECT_EQ(json.find("type")->as_string(), "error");
    EXPECT_FALSE(error->find("type")->as_string().empty());
    EXPECT_TRUE(!member || without_indices(message).starts_with(row.field)) << message;
    return;
  }
  const Json* param = error->find("param");
  ASSERT_NE(param, nullptr);
  EXPECT_EQ(param->is_null() ? "" : without_indices(param->as_string()), member ? row.field : "");
}

// No input may cost another stream a token: one runs through the whole table, and after every row its next
// token must come as if nothing had happened.
TEST(BadRequests, EachIsRefusedByFieldAndLimitAndCostsOthersNothing) {
  std::vector<int32_t> ids;
  Harness harness([&](const engine::Request&) { return Script{ids}; });
  std::vector<std::string> words;
  size_t rows = 0;
  for (const BadTable& table : tables()) rows += table.rows.size();
  for (size_t i = 0; i < rows; ++i) words.push_back(std::string(1, static_cast<char>('a' + i * 7 % 26)));
  for (const std::string& word : words) ids.push_back(harness.ids(word).at(0));
  SlowStream stream(harness);
  size_t row_index = 0;
  for (const BadTable& table : tables()) {
    for (const BadRequest& row : table.rows) {
      const Answer answer = send(harness, table, row);
      SCOPED_TRACE(
          fmt::format("{} {} {} ▶ {}", table.route, row.field, row.fault, answer.body.substr(0, 500)));
      check(table, row, answer);
      ASSERT_EQ(stream.next(), words[row_index++]);
    }
  }
  EXPECT_EQ(harness.get("/readyz").status, 200);
  EXPECT_EQ(harness.service->submitted_.load(), 1) << "the engine saw a bad request";
}

// A row that says what another one says tests nothing.
TEST(BadRequests, NoFaultIsThereTwiceAndThereAreEnough) {
  std::set<std::string> faults, sent, fields, kinds;
  for (const BadTable& table : tables()) {
    for (const BadRequest& row : table.rows) {
      const std::string kind = fmt::format("{} {}", row.field, row.fault);
      EXPECT_TRUE(faults.insert(fmt::format("{} {}", table.route, kind)).second)
          << table.route << " " << kind;
      EXPECT_TRUE(sent.insert(fmt::format("{} {}", table.path, row.send)).second)
          << table.route << " " << kind;
      EXPECT_FALSE(row.fault.empty()) << kind;
      EXPECT_EQ(without_indices(row.field), row.field);
      kinds.insert(kind);
      fields.emplace(row.field);
    }
  }
  EXPECT_GE(kinds.size(), 200u);  // the same fault of the same field counts once, whatever the routes
  EXPECT_GE(fields.size(), 60u);
  RecordProperty("rows", static_cast<int>(sent.size()));
  RecordProperty("kinds", static_cast<int>(kinds.size()));
  RecordProperty("fields", static_cast<int>(fields.size()));
}

TEST(BadRequests, PromptBeyondTheContextSaysSoInTheWordsClientsMatch) {
  Harness harness(hello, {}, 16);
  std::string content;
  for (int i = 0; i < 100; ++i) content += "hello ";
  const Answer answer = harness.post(kText, R"({"max_tokens":7,"prompt":")" + content + "\"}");
  EXPECT_EQ(answer.status, 400);
  const Json json = answer.json();
  const Json& error = *json.find("error");
  EXPECT_EQ(error.find("code")->as_string(), "context_length_exceeded");
  EXPECT_THAT(
      error.find("message")->as_string(),
      ::testing::MatchesRegex("This model's maximum context length is 16 tokens\\. However, you requested "
                              "[0-9]+ tokens \\([0-9]+ in the messages, 7 in the completion\\)\\. Please "
                              "reduce the length of the messages or completion\\."));
}

TEST(BadRequests, MaxTokensIsClampedWhenOnlyTheSumOverflows) {
  int64_t max_tokens = 0;
  Harness harness(
      [&](const engine::Request& request) {
        max_tokens = request.stop.max_tokens + static_cast<int64_t>(request.prompt.size());
        return Script{};
      },
      {}, 64);
  EXPECT_EQ(harness.post(kText, R"({"prompt":"hello","max_tokens":1000})").status, 200);
  EXPECT_EQ(max_tokens, 64);
}

TEST(BadRequests, TheEngineFullIs429WithRetryAfter) {
  Harness harness(hello);
  harness.service->refuse_ = true;
  const Answer answer = harness.post(kChat, R"({"messages":[{"role":"user","content":"Hi"}]})");
  EXPECT_EQ(answer.status, 429);
  EXPECT_EQ(answer.header("retry-after"), "1");
}

// The tokenizer refuses it, but the client must hear of its own field.
TEST(BadRequests, TextBeyondTheTokenizersLimitNamesTheFieldItCameIn) {
  Harness harness([](const engine::Request&) { return Script{}; });
  const std::string text(34u << 20, 'a');
  for (const auto& [path, body, field] :
       {std::tuple("/v1/completions", R"({"prompt":")" + text + R"("})", "prompt"),
        std::tuple("/v1/completions", R"({"prompt":["a",")" + text + R"("]})", "prompt[1]"),
        std::tuple("/v1/chat/completions", R"({"messages":[{"role":"user","content":")" + text + R"("}]})",
                   "messages")}) {
    const Answer answer = harness.post(path, body);
    EXPECT_EQ(answer.status, 413) << path;
    const Json json = answer.json();
    ASSERT_TRUE(json.find("error")) << answer.body.substr(0, 200);
    EXPECT_EQ(json.find("error")->find("param")->as_string(), field);
  }
}

}  // namespace
}  // namespace godwit::server::testing
