#include "config/serve_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdlib>
#include <fstream>

#include "config/option_layers.h"

namespace godwit {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A command line as main() sees it: parsed by CLI11, then layered.
class ServeFlags : public ::testing::Test {
 protected:
  void TearDown() override {
    for (const std::string& name : variables_) unsetenv(name.c_str());
  }

  void set_variable(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
    variables_.push_back(name);
  }

  std::filesystem::path write_file(const std::string& text) {
    const auto path = std::filesystem::path(::testing::TempDir()) / "serve_config_test.toml";
    std::ofstream(path) << text;
    return path;
  }

  // Throws CLI::ParseError as the real command line would.
  Result<OptionSources> parse(std::vector<std::string> args, const std::filesystem::path& file = {}) {
    app_ = std::make_unique<CLI::App>("test", "godwit");
    CLI::App* serve = app_->add_subcommand("serve", "");
    config_ = ServeConfig{};
    bind_serve_options(*serve, config_);
    args.insert(args.begin(), "serve");
    std::reverse(args.begin(), args.end());  // CLI11 takes a stack
    app_->parse(args);
    return apply_option_layers(*serve, file);
  }

  std::string usage_message(std::vector<std::string> args) {
    try {
      (void)parse(std::move(args));
    } catch (const CLI::ParseError& error) {
      return error.what();
    }
    return "accepted";
  }

  ServeConfig config_;

 private:
  std::unique_ptr<CLI::App> app_;
  std::vector<std::string> variables_;
};

TEST_F(ServeFlags, DefaultsNeedNoFlag) {
  auto sources = parse({});
  ASSERT_TRUE(sources.ok());
  EXPECT_TRUE(sources->empty());
  EXPECT_EQ(config_.port, 8000);
  EXPECT_EQ(config_.host, "127.0.0.1");
  EXPECT_EQ(config_.body_limit, 64u << 20);
  EXPECT_FALSE(config_.seed.has_value());
}

TEST_F(ServeFlags, CommandLineReadsEveryKind) {
  auto sources =
      parse({"--model", "somewhere", "--served-name", "a", "--served-name", "b", "--port=0", "--seed", "7",
             "--body-limit", "2MiB", "--context", "4096", "--prefill-tokens", "128"});
  ASSERT_TRUE(sources.ok());
  EXPECT_EQ(config_.model, "somewhere");
  EXPECT_THAT(config_.served_names, ElementsAre("a", "b"));
  EXPECT_EQ(config_.port, 0);
  EXPECT_EQ(config_.seed, 7);
  EXPECT_EQ(config_.body_limit, 2u << 20);
  EXPECT_EQ(config_.context, 4096);
  EXPECT_EQ(config_.prefill_tokens, 128);
  EXPECT_EQ((*sources)["port"], "command line");
}

TEST_F(ServeFlags, CommandLineBeatsEnvironmentBeatsFile) {
  set_variable("GODWIT_PORT", "9001");
  set_variable("GODWIT_MAX_WAITING", "5");
  const auto file = write_file("port = 9002\nmax-waiting = 6\nthreads = 3\nhost = \"0.0.0.0\"\n");
  auto sources = parse({"--port", "9000"}, file);
  ASSERT_TRUE(sources.ok()) << sources.error().message;
  EXPECT_EQ(config_.port, 9000);
  EXPECT_EQ(config_.max_waiting, 5);
  EXPECT_EQ(config_.threads, 3);
  EXPECT_EQ(config_.host, "0.0.0.0");
  EXPECT_EQ((*sources)["port"], "command line");
  EXPECT_EQ((*sources)["max-waiting"], "GODWIT_MAX_WAITING");
  EXPECT_EQ((*sources)["threads"], file.string());
  EXPECT_FALSE(sources->contains("seed"));
}

TEST_F(ServeFlags, ListsAndSizesWorkInEveryLayer) {
  set_variable("GODWIT_SERVED_NAME", "a,b");
  auto from_environment = parse({}, write_file("body-limit = \"1MiB\"\n"));
  ASSERT_TRUE(from_environment.ok()) << from_environment.error().message;
  EXPECT_THAT(config_.served_names, ElementsAre("a", "b"));
  EXPECT_EQ(config_.body_limit, 1u << 20);
  unsetenv("GODWIT_SERVED_NAME");
  auto from_file = parse({}, write_file("served-name = [\"c\", \"d\"]\n"));
  ASSERT_TRUE(from_file.ok()) << from_file.error().message;
  EXPECT_THAT(config_.served_names, ElementsAre("c", "d"));
}

TEST_F(ServeFlags, SectionsOfOtherCommandsAreSkipped) {
  auto sources = parse({}, write_file("[route]\nreplica = \"x\"\n[serve]\nport = 9003\n"));
  ASSERT_TRUE(sources.ok()) << sources.error().message;
  EXPECT_EQ(config_.port, 9003);
}

TEST_F(ServeFlags, UnknownKeyInAFileIsRefusedWithASuggestion) {
  auto sources = parse({}, write_file("prot = 9000\n"));
  ASSERT_FALSE(sources.ok());
  EXPECT_EQ(sources.error().code, ErrorCode::usage);
  EXPECT_THAT(sources.error().message, HasSubstr("unknown key \"prot\", did you mean \"port\"?"));
}

TEST_F(ServeFlags, BadValuesNameWhereTheyCameFrom) {
  auto from_file = parse({}, write_file("port = 70000\n"));
  ASSERT_FALSE(from_file.ok());
  EXPECT_THAT(from_file.error().message, HasSubstr("port"));
  set_variable("GODWIT_THREADS", "many");
  auto from_environment = parse({});
  ASSERT_FALSE(from_environment.ok());
  EXPECT_EQ(from_environment.error().field, "GODWIT_THREADS");
  EXPECT_THAT(from_environment.error().message, HasSubstr("many"));
}

TEST_F(ServeFlags, KubernetesServiceLinksAreExplained) {
  set_variable("GODWIT_PORT", "tcp://10.0.0.7:8000");
  auto sources = parse({});
  ASSERT_FALSE(sources.ok());
  EXPECT_THAT(sources.error().message, HasSubstr("enableServiceLinks"));
}

TEST_F(ServeFlags, CommandLineRefusesWhatCannotBe) {
  EXPECT_THAT(usage_message({"--port", "65536"}), HasSubstr("--port"));
  EXPECT_THAT(usage_message({"--port", "-1"}), HasSubstr("--port"));
  EXPECT_THAT(usage_message({"--context", "0"}), HasSubstr("--context"));
  EXPECT_THAT(usage_message({"--device", "tpu"}), HasSubstr("tpu"));
  EXPECT_THAT(usage_message({"--kv", "fp16"}), HasSubstr("fp16"));
  for (const char* kv : {"auto", "f32", "bf16", "fp8"}) EXPECT_EQ(usage_message({"--kv", kv}), "accepted");
  EXPECT_THAT(usage_message({"--seed", "lucky"}), HasSubstr("lucky"));
  EXPECT_THAT(usage_message({"--body-limit", "lots"}), HasSubstr("lots"));
  EXPECT_THAT(usage_message({"--default-reasoning-effort", "medium"}), HasSubstr("medium"));
}

// What cannot be is refused with flag, value and what may be; nothing is wrapped around, cut or taken for
// octal.
TEST_F(ServeFlags, ABadNumberNamesTheFlagTheValueAndTheLimits) {
  for (const auto& [flag, range] : std::vector<std::pair<std::string, std::string>>{
           {"--threads", "from 1 to 1024"},
           {"--context", "from 64 to 1073741824"},
           {"--max-sequences", "from 1 to 65536"},
           {"--max-waiting", "from 0 to 1000000"},
           {"--itl-target", "from 1 to 60000"},
           {"--prefill-tokens", "from 64 to 1073741824"},
           {"--step-deadline", "from 0 to 86400"},
           {"--default-max-tokens", "from 1 to 1073741824"},
           {"--port", "from 0 to 65535"},
           {"--admin-port", "from 0 to 65535"},
           {"--stored-responses", "from 0 to 1000000"},
           {"--drain-timeout", "from 0 to 86400"},
           {"--seed", "from -9223372036854775808 to 9223372036854775807"},
           {"--host-cache", "KiB"},
           {"--gpu-memory", "KiB"},
           {"--body-limit", "KiB"},
           {"--stored-responses-size", "KiB"}}) {
    std::vector<std::string> values = {"x", "1.5", "1e2", "0x10", "nan", "99999999999999999999", "5 6", "--"};
    if (flag != "--seed") values.push_back("-1");
    if (range == "KiB") values.insert(values.end(), {"1XB", "-1GiB", "99999999999TB", "9999999PiB"});
    for (const std::string& value : values) {
      std::string message = usage_message({flag + "=" + value});
      EXPECT_THAT(message, ::testing::AllOf(HasSubstr(flag), HasSubstr("'" + value + "'"), HasSubstr(range)))
          << flag << "=" << value;
    }
  }
}

TEST_F(ServeFlags, NumbersAreDecimal) {
  ASSERT_TRUE(parse({"--port=0100", "--seed=-5", "--body-limit=010KiB", "--admin-port", "65535"}).ok());
  EXPECT_EQ(config_.port, 100);
  EXPECT_EQ(config_.seed, -5);
  EXPECT_EQ(config_.body_limit, 10u << 10);
  EXPECT_EQ(config_.admin_port, 65535);
}

TEST_F(ServeFlags, AnOriginThatNoBrowserSendsIsRefused) {
  for (const char* origin : {"*", "null", "https://a.example", "http://localhost:3000", "app://obsidian.md"})
    EXPECT_EQ(usage_message({"--cors-origin", origin}), "accepted") << origin;
  for (const char* origin :
       {"a.example", "https://a.example/", "https://a.example/chat", "https://", "://a",
        "https://u@a.example", "https://a.example?x", "https://a.example, https://b.example"})
    EXPECT_THAT(usage_message({"--cors-origin", origin}),
                ::testing::AllOf(HasSubstr("--cors-origin"), HasSubstr(origin), HasSubstr("scheme://host")));
}

TEST(ServeConfigCheck, FindsTheDefaultModelBesideTheBuildDirectory) {
  const std::filesystem::path source = GODWIT_SOURCE_DIR;
  EXPECT_EQ(find_default_model(source / "build" / "godwit").filename(), "tiny-glm5next");
  EXPECT_TRUE(find_default_model("/nowhere/at/all/godwit").empty());
}

TEST(ServeConfigCheck, NamesTheServedModelAfterItsDirectory) {
  ServeConfig config;
  config.model = std::string(GODWIT_SOURCE_DIR) + "/models/tiny-glm5next/";
  ASSERT_TRUE(resolve_serve_config(config).ok());
  EXPECT_THAT(config.served_names, ElementsAre("tiny-glm5next"));
}

TEST(ServeConfigCheck, RefusesWhatDoesNotFitTogether) {
  const auto field = [](auto change) {
    ServeConfig config;
    config.model = std::string(GODWIT_SOURCE_DIR) + "/models/tiny-glm5next";
    change(config);
    auto result = resolve_serve_config(config);
    return result.ok() ? std::string("accepted") : result.error().field;
  };
  EXPECT_EQ(field([](ServeConfig&) {}), "accepted");
  EXPECT_EQ(field([](ServeConfig& c) { c.model = "/no/such/model"; }), "--model");
  EXPECT_EQ(field([](ServeConfig& c) { c.model /= "config.json"; }), "--model");
  EXPECT_EQ(field([](ServeConfig& c) { c.chat_template = "/no/such/file"; }), "--chat-template");
  EXPECT_EQ(field([](ServeConfig& c) { c.prefill_tokens = 100; }), "--prefill-tokens");
  EXPECT_EQ(field([](ServeConfig& c) { c.context = c.default_max_tokens = 512; }), "--default-max-tokens");
  EXPECT_EQ(field([](ServeConfig& c) { c.body_limit = 10; }), "--body-limit");
}

TEST(ClosestName, SuggestsOnlyWhatIsClose) {
  const std::vector<std::string> known{"port", "host", "max-sequences"};
  EXPECT_EQ(closest_name("prot", known), "port");
  EXPECT_EQ(closest_name("max-sequence", known), "max-sequences");
  EXPECT_EQ(closest_name("temperature", known), "");
  EXPECT_EQ(environment_name("--max-sequences"), "GODWIT_MAX_SEQUENCES");
}

}  // namespace
}  // namespace godwit
