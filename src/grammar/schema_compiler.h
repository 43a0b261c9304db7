// JSON Schema ▶ graph nodes. The subset and its reading are documented in docs/structured_output.md.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "grammar/graph.h"
#include "grammar/schema_merge.h"

namespace godwit::grammar {

// Limits of one schema; what passes one is refused with its name.
constexpr size_t kMaxSchemaValues = 100'000;  // JSON values in the document
constexpr size_t kMaxSchemaBytes = 1 << 20;   // of its names and strings
constexpr size_t kMaxEnum = 10'000;           // values of one enum
constexpr size_t kMaxProperties = 1'000;      // of one object
constexpr size_t kMaxAlternatives = 256;      // of one anyOf or oneOf

// How a value is written: JSON; or the text between <arg_value> and </arg_value>, where a string stands as it
// is and everything else as JSON (api spec §3.9).
enum class Form : uint8_t { json, argument };

// The keywords of an object schema, with what absent ones mean here.
struct ObjectShape {
  struct Property {
    std::string name;
    const Json* schema;
    bool required;
  };
  std::vector<Property> properties;  // in the schema's order; then required ones it does not declare
  const Json* additional = nullptr;  // schema of further properties; nullptr: there are none
};

class SchemaCompiler {
 public:
  // Both outlive the compiler.
  SchemaCompiler(Graph& graph, const Json& root) : graph_(graph), merger_(root), root_(root) {}

  // A node for the whole schema. Errors: invalid_request about a keyword or a limit.
  Result<uint32_t> compile();
  // A node for an object of `schema`'s properties with no use of JSON syntax around them: the pairs of a tool
  // call. key_before and key_after stand around each key, value_before and value_after around each value.
  Result<uint32_t> compile_arguments(const struct ArgumentTags& tags);

 private:
  struct Task {
    const Json* schema;
    std::string path;
    Form form;
    uint32_t node;
  };

  uint32_t node_of(const Json* schema, std::string path, Form form);
  Result<void> check_size() const;
  Result<void> run();
  Result<uint32_t> one(const Task& task);
  Result<uint32_t> alternatives(const Json& flat, const Task& task);
  Result<uint32_t> of_type(const std::string& type, const Json& flat, const Task& task);
  Result<uint32_t> values(const JsonArray& list, const Json& flat, const Task& task);
  Result<uint32_t> text(const Json& flat, const Task& task);
  Result<uint32_t> number(bool integer, const Json& flat, const Task& task);
  Result<uint32_t> object(const Json& flat, const Task& task);
  Result<uint32_t> array(const Json& flat, const Task& task);
  Result<ObjectShape> shape_of(const Json& flat, const std::string& path);
  uint32_t constant(const Json& value);
  uint32_t key(const std::string& name);
  uint32_t any(Form form);

  Graph& graph_;
  SchemaMerger merger_;
  const Json& root_;
  std::map<std::pair<const Json*, Form>, uint32_t> known_;
  std::vector<Task> tasks_;
  uint32_t any_json_ = kNone;
};

struct ArgumentTags {
  int32_t key_open, key_close, value_open, value_close;
};

// Any JSON value; any JSON object.
uint32_t any_value(Graph& graph);
uint32_t any_object(Graph& graph);

}  // namespace godwit::grammar
