#include "metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <set>
#include <sstream>

namespace godwit::metrics {
namespace {

using ::testing::HasSubstr;

TEST(Metrics, GaugesAndTotalsAreTheSnapshotOfTheScrape) {
  Metrics metrics;
  EngineSnapshot engine;
  engine.ready = true;
  engine.running = 3;
  engine.pages_used = 7;
  engine.pages_total = 40;
  engine.prompt_tokens = 100;
  engine.generated_tokens = 50;
  EXPECT_THAT(metrics.text(engine), HasSubstr("godwit_generated_tokens_total 50\n"));
  engine.running = 0;
  engine.generated_tokens = 75;
  const std::string text = metrics.text(engine);
  for (const char* line :
       {"godwit_ready 1\n", "godwit_requests_running 0\n", "godwit_pages_used 7\n", "godwit_pages_total 40\n",
        "godwit_prompt_tokens_total 100\n", "godwit_generated_tokens_total 75\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST(Metrics, RequestsAreCountedByRouteCodeAndReason) {
  Metrics metrics;
  metrics.count_response("chat", 200);
  metrics.count_response("chat", 200);
  metrics.count_response("chat", 400);
  metrics.count_finish("length");
  metrics.count_abort();
  metrics.count_rollback();
  const std::string text = metrics.text({});
  for (const char* line : {"godwit_requests_total{code=\"200\",route=\"chat\"} 2\n",
                           "godwit_requests_total{code=\"400\",route=\"chat\"} 1\n",
                           "godwit_finished_total{reason=\"length\"} 1\n", "godwit_aborts_total 1\n",
                           "godwit_tool_call_rollbacks_total 1\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

// Every name with a type line, when everything that can be counted has been.
std::set<std::string> exported() {
  Metrics metrics;
  metrics.count_response("chat", 200);
  metrics.count_finish("stop");
  metrics.count_key_request("alice", "accepted");
  EngineSnapshot engine;
  engine.adjusted.push_back({"context", 2, 1});
  engine.misses.emplace_back("too_short", 1);
  std::set<std::string> names;
  std::istringstream text(metrics.text(engine));
  for (std::string hash, type, name; text >> hash;) {
    if (hash == "#" && text >> type >> name && type == "TYPE") names.insert(name);
    text.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return names;
}

TEST(Metrics, WhatIsDocumentedIsExportedAndViceVersa) {
  std::ifstream file(std::string(GODWIT_SOURCE_DIR) + "/docs/operations.md");
  std::set<std::string> documented;
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("| `godwit_"))  // a row of the table
      documented.insert(line.substr(3, line.find('`', 3) - 3));
  EXPECT_EQ(documented, exported());
}

TEST(Metrics, MissesAreCountedByReason) {
  Metrics metrics;
  EngineSnapshot engine;
  engine.misses = {{"too_short", 4}, {"evicted", 0}};
  EXPECT_THAT(metrics.text(engine), HasSubstr("godwit_prefix_misses_total{reason=\"too_short\"} 4\n"));
  engine.misses = {{"too_short", 4}, {"evicted", 2}};
  const std::string text = metrics.text(engine);
  EXPECT_THAT(text, HasSubstr("godwit_prefix_misses_total{reason=\"too_short\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("godwit_prefix_misses_total{reason=\"evicted\"} 2\n"));
}

TEST(Metrics, WhatNeverHappenedIsNotObserved) {
  Metrics metrics;
  metrics.observe_request({.prompt_tokens = 10, .generated_tokens = 0, .total_seconds = 0.5});
  metrics.observe_request({.prompt_tokens = 10,
                           .generated_tokens = 4,
                           .reasoning_tokens = 3,
                           .queue_seconds = 0.002,
                           .first_token_seconds = 0.2,
                           .total_seconds = 0.5});
  const std::string text = metrics.text({});
  EXPECT_THAT(text, HasSubstr("godwit_time_to_first_token_seconds_count 1\n"));
  EXPECT_THAT(text, HasSubstr("godwit_time_to_first_token_seconds_bucket{le=\"0.1\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("godwit_queue_seconds_count 1\n"));
  EXPECT_THAT(text, HasSubstr("godwit_request_seconds_count 2\n"));
  EXPECT_THAT(text, HasSubstr("godwit_reasoning_tokens_total 3\n"));
}

}  // namespace
}  // namespace godwit::metrics
