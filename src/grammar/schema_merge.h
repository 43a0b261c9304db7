// JSON Schemas made flat: $ref resolved, allOf and the siblings of $ref merged into one list of keywords.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace godwit::grammar {

// invalid_request about `keyword` of the schema at `path` ("#/properties/a").
template <class... Args>
Error schema_error(std::string_view keyword, std::string_view path, fmt::format_string<Args...> format,
                   Args&&... args) {
  return make_error(ErrorCode::invalid_request, "schema", "JSON Schema keyword '{}' at {}: {}", keyword, path,
                    fmt::format(format, std::forward<Args>(args)...));
}

// Keywords that say nothing about which values are valid, or nothing that is checked.
bool is_annotation(std::string_view keyword);
// Refuses what the subset lacks, and values of the wrong kind for what it has (docs/structured_output.md).
Result<void> check_keywords(const Json& schema, std::string_view path);

class SchemaMerger {
 public:
  explicit SchemaMerger(const Json& root) : root_(root) {}

  // The schema a $ref names. Errors: not local, or nothing there.
  Result<const Json*> resolve(const Json& ref, std::string_view path) const;
  // One object with the keywords of `schema` and of all that its $ref and allOf name, without those two and
  // without annotations; const becomes enum. `schema` is an object.
  Result<Json> flatten(const Json& schema, const std::string& path) { return flatten(schema, path, 0); }
  // Counts a copy of `schema` against the limit that keeps references and alternatives from multiplying
  // without end.
  Result<void> spend(const Json& schema, const std::string& path);
  // Keeps `schema` as long as this object lives.
  const Json* keep(Json schema) { return &kept_.emplace_back(std::move(schema)); }

 private:
  Result<Json> flatten(const Json& schema, const std::string& path, unsigned depth);
  Result<void> merge(JsonObject& into, const JsonObject& from, const std::string& path);
  Result<void> merge_keyword(JsonObject& into, std::string_view keyword, const Json& value,
                             const std::string& path);
  Result<void> merge_additional(const JsonObject& a, const JsonObject& b, const std::string& path) const;

  const Json& root_;
  std::deque<Json> kept_;
  size_t copied_ = 0;  // values, against bombs of references
};

}  // namespace godwit::grammar
