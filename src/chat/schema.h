// What JSON types a tool's schema allows for a value (api spec §3.3). Schemas come from clients: every walk
// is bounded, and whatever is not understood means "unknown".
#pragma once

#include <cstdint>
#include <string_view>

#include "base/json.h"

namespace godwit::chat {

enum class JsonType : uint8_t {
  string = 1,
  integer = 2,
  number = 4,
  boolean = 8,
  null = 16,
  array = 32,
  object = 64
};

JsonType type_of(const Json& value);

// A set of types; the empty set stands for "unknown", which allows everything.
class TypeSet {
 public:
  constexpr TypeSet() = default;
  constexpr bool known() const { return bits_ != 0; }
  constexpr bool has(JsonType t) const { return (bits_ & static_cast<uint8_t>(t)) != 0; }
  constexpr bool allows(JsonType t) const { return !known() || has(t); }
  constexpr bool only_string() const { return bits_ == static_cast<uint8_t>(JsonType::string); }
  constexpr void add(JsonType t) {
    bits_ |= static_cast<uint8_t>(t);
    if (t == JsonType::number) add(JsonType::integer);
  }
  constexpr TypeSet united(TypeSet o) const {
    return known() && o.known() ? TypeSet(bits_ | o.bits_) : TypeSet();
  }
  // What contradicts itself counts as unknown.
  constexpr TypeSet intersected(TypeSet o) const {
    return !known() ? o : !o.known() ? *this : TypeSet(bits_ & o.bits_);
  }
  bool operator==(const TypeSet&) const = default;

 private:
  constexpr explicit TypeSet(int bits) : bits_(static_cast<uint8_t>(bits)) {}
  uint8_t bits_ = 0;
};

// A schema inside the document that its local references ("#/$defs/x") point into. Neither is owned.
class Schema {
 public:
  Schema() = default;  // no schema: everything is unknown
  explicit Schema(const Json* root) : root_(root), node_(root) {}

  TypeSet types() const;
  // Schema of a member: properties, then patternProperties, then additionalProperties.
  Schema member(std::string_view key) const;
  Schema element(size_t index) const;

 private:
  Schema(const Json* root, const Json* node) : root_(root), node_(node) {}
  Schema resolved() const;
  TypeSet types(int depth, int& budget) const;
  TypeSet branches(std::string_view keyword, bool all, int depth, int& budget) const;

  const Json* root_ = nullptr;
  const Json* node_ = nullptr;
};

}  // namespace godwit::chat
