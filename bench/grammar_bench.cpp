// What a grammar costs: compiling, masks (first visits included) and accepting, over 200 generated schemas,
// each with a document of its own that is followed token by token. CPU time of one thread, so a busy machine
// blurs it little. grammar_bench TOKENIZER.json... (ninja trained_tokenizer makes one of the real size);
// results as JSON lines.
#include <fmt/core.h>
#include <time.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "base/json.h"
#include "grammar/matcher.h"

namespace {

using namespace godwit::grammar;
using godwit::Json;
using godwit::JsonArray;
using godwit::JsonObject;
using Random = std::mt19937;

constexpr unsigned kSchemas = 200;

double cpu_us() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e6 + static_cast<double>(t.tv_nsec) / 1e3;
}

const std::vector<std::string> kWords = {
    "account", "address", "amount",   "author",  "balance",  "category", "city",   "comment",  "country",
    "created", "date",    "delivery", "details", "email",    "end",      "error",  "größe",    "height",
    "id",      "index",   "items",    "label",   "language", "level",    "limit",  "location", "message",
    "name",    "note",    "number",   "order",   "owner",    "page",     "path",   "price",    "priority",
    "product", "query",   "quantity", "reason",  "result",   "search",   "source", "start",    "status",
    "summary", "tags",    "time",     "title",   "total",    "type",     "unit",   "update",   "url",
    "user",    "value",   "version",  "weight",  "width",    "数据"};

std::string words(Random& random, unsigned count) {
  std::string out;
  for (unsigned i = 0; i < count; ++i) {
    if (i > 0) out += random() % 9 == 0 ? ", " : random() % 23 == 0 ? " \"" : random() % 31 == 0 ? "\n" : " ";
    out += kWords[random() % kWords.size()];
  }
  return out;
}

struct Case {
  Json schema;
  Json document;
};

Case text_case(Random& random) {
  auto typed = [](JsonObject more) {
    more.set("type", "string");
    return Json(std::move(more));
  };
  JsonObject keywords;
  switch (random() % 8) {
    case 0: {
      std::string text = words(random, 4 + random() % 30);
      keywords.set("minLength", static_cast<int64_t>(random() % 10));
      keywords.set("maxLength", static_cast<int64_t>(text.size() + random() % 200));
      return {typed(keywords), text};
    }
    case 1:
      keywords.set("pattern", "^[A-Z]{2,3}-[0-9]{4}$");
      return {typed(keywords), fmt::format("AB-{}", 1000 + random() % 9000)};
    case 2:
      keywords.set("format", "date-time");
      return {typed(keywords), fmt::format("2026-11-{}T08:30:{}Z", 10 + random() % 20, 10 + random() % 50)};
    case 3:
      keywords.set("pattern", "^[^@\\s]+@[^@\\s]+\\.[a-z]{2,}$");
      return {typed(keywords), kWords[random() % 16] + "@" + kWords[random() % 16] + ".org"};
    case 4:
      keywords.set("pattern", "^\\S.*\\S$");
      return {typed(keywords), "a " + kWords[random() % 16] + " " + kWords[random() % 16]};
    default:
      return {typed(keywords), words(random, 1 + random() % 30)};
  }
}

Case any_case(Random& random, int depth);

Case object_case(Random& random, int depth) {
  JsonObject properties;
  JsonObject document;
  JsonArray required;
  const unsigned count = 2 + random() % 7;
  while (properties.size() < count) {
    std::string name = kWords[random() % kWords.size()];
    if (random() % 3 == 0) name += "_" + kWords[random() % kWords.size()];
    if (properties.find(name) != nullptr) continue;
    Case member = any_case(random, depth - 1);
    properties.set(name, member.schema);
    const bool needed = random() % 3 != 0;
    if (needed) required.push_back(name);
    if (needed || random() % 2) document.set(name, member.document);
  }
  Json schema = Json::object({{"type", "object"}, {"properties", properties}, {"required", required}});
  if (random() % 2) schema.as_object().set("additionalProperties", false);
  return {schema, document};
}

Case any_case(Random& random, int depth) {
  switch (random() % (depth > 0 ? 12 : 8)) {
    case 0:
      return {Json::object({{"type", "boolean"}}), random() % 2 == 0};
    case 1:
      return {Json::object({{"type", "integer"}, {"minimum", 0}, {"maximum", 5000}}),
              static_cast<int64_t>(random() % 5000)};
    case 2:
      return {Json::object({{"type", "number"}}), static_cast<double>(random() % 100000) / 100};
    case 3: {
      JsonArray values;
      for (unsigned i = 0; i < 3 + random() % 12; ++i) values.push_back(kWords[random() % kWords.size()]);
      const Json chosen = values[random() % values.size()];
      return {Json::object({{"enum", values}}), chosen};
    }
    case 8:
    case 9: {
      JsonArray list;
      Case item = any_case(random, depth - 1);
      for (unsigned i = 0; i < random() % 4; ++i) list.push_back(item.document);
      return {Json::object({{"type", "array"}, {"items", item.schema}, {"maxItems", 10}}), list};
    }
    case 10: {
      Case one = any_case(random, depth - 1);
      return {Json::object({{"anyOf", JsonArray{one.schema, Json::object({{"type", "null"}}),
                                                object_case(random, depth - 1).schema}}}),
              one.document};
    }
    case 11:
      return object_case(random, depth);
    default:
      return text_case(random);
  }
}

struct Times {
  std::vector<double> us;
  double at(double share) {
    std::sort(us.begin(), us.end());
    return us[static_cast<size_t>(share * static_cast<double>(us.size() - 1))];
  }
  std::string json() {
    return fmt::format(
        R"({{"count": {}, "p50_us": {:.1f}, "p90_us": {:.1f}, "p99_us": {:.1f}, "max_us": {:.1f}}})",
        us.size(), at(0.5), at(0.9), at(0.99), at(1));
  }
};

struct Run {
  std::shared_ptr<const TokenIndex> index;
  Times compile, first, again, accept;
  std::vector<uint32_t> mask;

  // Follows the ids, timing masks into `into`; false when the grammar refuses one.
  bool follow(const std::shared_ptr<const Grammar>& grammar, const std::vector<int32_t>& ids, Times& into) {
    Matcher matcher(grammar, false);
    for (size_t i = 0; i <= ids.size(); ++i) {
      const double start = cpu_us();
      matcher.fill_mask(mask);
      const double filled = cpu_us();
      into.us.push_back(filled - start);
      if (i == ids.size()) break;
      const int32_t id = ids[i];
      if ((mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) == 0 || !matcher.accept(id)) return false;
      accept.us.push_back(cpu_us() - filled);
    }
    return matcher.is_complete();
  }
};

int measure(const std::string& path) {
  auto tokenizer = godwit::tokenizer::Tokenizer::load(path);
  if (!tokenizer.ok()) {
    fmt::print(stderr, "{}\n", tokenizer.error().message);
    return 3;
  }
  const int32_t end = find_control_ids(**tokenizer).end_of_text;
  const double start = cpu_us();
  Run run{
      TokenIndex::make(*tokenizer, ((*tokenizer)->size() + 63) / 64 * 64, std::span(&end, end >= 0 ? 1 : 0))
          .value(),
      {},
      {},
      {},
      {},
      {}};
  const double index_ms = (cpu_us() - start) / 1e3;
  run.mask.resize(run.index->mask_words());
  for (unsigned seed = 0; seed < kSchemas; ++seed) {
    Random random(seed);
    const Case made = object_case(random, 3);
    GrammarSpec spec;
    spec.content = GrammarSpec::Content::json_schema;
    spec.schema = made.schema;
    const double before = cpu_us();
    auto grammar = compile(spec, run.index);
    run.compile.us.push_back(cpu_us() - before);
    const std::string text = godwit::dump_json(made.document);
    auto ids = (*tokenizer)->encode(text, godwit::tokenizer::AddedTokens::none());
    if (!grammar.ok() || !ids.ok() || !run.follow(*grammar, *ids, run.first) ||
        !run.follow(*grammar, *ids, run.again)) {
      fmt::print(stderr, "schema {} does not take its document\n", seed);
      return 1;
    }
  }
  fmt::print(
      "{{\"vocab_size\": {}, \"schemas\": {}, \"index_ms\": {:.1f},\n \"mask_first_pass\": {},\n "
      "\"mask_second_pass\": {},\n \"accept\": {},\n \"compile\": {}}}\n",
      run.index->vocab_size(), kSchemas, index_ms, run.first.json(), run.again.json(), run.accept.json(),
      run.compile.json());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (int rc = measure(argv[i]); rc != 0) return rc;
  }
  return 0;
}
