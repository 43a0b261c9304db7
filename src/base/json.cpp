#include "base/json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "base/assert.h"

namespace godwit {
namespace {

// Below this many members a scan of the keys is faster than a hash and needs no second copy of them.
constexpr size_t kLinear = 16;

constexpr double kTwo63 = 9223372036854775808.0;

bool same_number(double real, int64_t integer) {
  // Compared as integers: converting the integer to double would make 2^53 + 1 equal to 2^53.
  if (!(real >= -kTwo63 && real < kTwo63) || std::trunc(real) != real) return false;
  return static_cast<int64_t>(real) == integer;
}

bool same_number(double real, const std::string& digits) {
  if (!std::isfinite(real) || std::trunc(real) != real) return false;
  return fmt::format("{:.0f}", real) == digits;
}

}  // namespace

const Json* JsonObject::find(std::string_view key) const {
  return const_cast<JsonObject*>(this)->find(key);
}

Json* JsonObject::find(std::string_view key) {
  if (members_.size() > kLinear) {
    auto it = index_.find(std::string(key));
    return it == index_.end() ? nullptr : &members_[it->second].second;
  }
  for (Member& m : members_) {
    if (m.first == key) return &m.second;
  }
  return nullptr;
}

Json& JsonObject::operator[](std::string_view key) {
  if (Json* found = find(key)) return *found;
  members_.emplace_back(std::string(key), Json());
  if (members_.size() == kLinear + 1) {
    for (size_t i = 0; i < members_.size(); ++i) index_.emplace(members_[i].first, i);
  } else if (members_.size() > kLinear) {
    index_.emplace(members_.back().first, members_.size() - 1);
  }
  return members_.back().second;
}

void JsonObject::set(std::string_view key, Json value) {
  (*this)[key] = std::move(value);
}

bool JsonObject::erase(std::string_view key) {
  const Json* found = find(key);
  if (found == nullptr) return false;
  auto it =
      std::find_if(members_.begin(), members_.end(), [&](const Member& m) { return &m.second == found; });
  members_.erase(it);
  index_.clear();
  if (members_.size() > kLinear) {
    for (size_t i = 0; i < members_.size(); ++i) index_.emplace(members_[i].first, i);
  }
  return true;
}

size_t JsonObject::size() const {
  return members_.size();
}
bool JsonObject::empty() const {
  return members_.empty();
}
std::vector<JsonObject::Member>::const_iterator JsonObject::begin() const {
  return members_.begin();
}
std::vector<JsonObject::Member>::const_iterator JsonObject::end() const {
  return members_.end();
}
std::vector<JsonObject::Member>::iterator JsonObject::begin() {
  return members_.begin();
}
std::vector<JsonObject::Member>::iterator JsonObject::end() {
  return members_.end();
}

Json::Json(uint64_t value) {
  if (value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    v_ = static_cast<int64_t>(value);
  } else {
    v_ = Big{std::to_string(value)};
  }
}
Json::Json(JsonArray value) : v_(std::make_unique<JsonArray>(std::move(value))) {}
Json::Json(JsonObject value) : v_(std::make_unique<JsonObject>(std::move(value))) {}
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(Json&&) noexcept = default;
Json::~Json() = default;

Json::Json(const Json& other) {
  *this = other;
}

Json& Json::operator=(const Json& other) {
  if (this == &other) return *this;
  switch (other.kind()) {
    case Kind::null:
      v_ = std::monostate();
      break;
    case Kind::boolean:
      v_ = other.as_bool();
      break;
    case Kind::integer:
      v_ = other.as_integer();
      break;
    case Kind::big_integer:
      v_ = Big{other.as_big_integer()};
      break;
    case Kind::real:
      v_ = std::get<double>(other.v_);
      break;
    case Kind::string:
      // By way of a temporary: `other` may live inside the value that this assignment destroys.
      v_ = std::string(other.as_string());
      break;
    case Kind::array:
      v_ = std::make_unique<JsonArray>(other.as_array());
      break;
    case Kind::object:
      v_ = std::make_unique<JsonObject>(other.as_object());
      break;
  }
  return *this;
}

Json Json::big_integer(std::string digits) {
  Json out;
  out.v_ = Big{std::move(digits)};
  return out;
}

Json Json::object(std::initializer_list<std::pair<std::string_view, Json>> members) {
  JsonObject out;
  for (const auto& [key, value] : members) out.set(key, value);
  return out;
}

bool Json::as_bool() const {
  GODWIT_ASSERT(is_bool());
  return std::get<bool>(v_);
}
int64_t Json::as_integer() const {
  GODWIT_ASSERT(is_integer());
  return std::get<int64_t>(v_);
}
double Json::as_double() const {
  GODWIT_ASSERT(is_number());
  if (is_integer()) return static_cast<double>(as_integer());
  if (is_real()) return std::get<double>(v_);
  const std::string& digits = as_big_integer();
  double out = 0;
  auto end = std::from_chars(digits.data(), digits.data() + digits.size(), out);
  if (end.ec == std::errc::result_out_of_range) {
    out = std::numeric_limits<double>::infinity() * (digits[0] == '-' ? -1 : 1);
  }
  return out;
}
const std::string& Json::as_string() const {
  GODWIT_ASSERT(is_string());
  return std::get<std::string>(v_);
}
std::string& Json::as_string() {
  GODWIT_ASSERT(is_string());
  return std::get<std::string>(v_);
}
const std::string& Json::as_big_integer() const {
  GODWIT_ASSERT(kind() == Kind::big_integer);
  return std::get<Big>(v_).digits;
}
const JsonArray& Json::as_array() const {
  GODWIT_ASSERT(is_array());
  return *std::get<std::unique_ptr<JsonArray>>(v_);
}
JsonArray& Json::as_array() {
  GODWIT_ASSERT(is_array());
  return *std::get<std::unique_ptr<JsonArray>>(v_);
}
const JsonObject& Json::as_object() const {
  GODWIT_ASSERT(is_object());
  return *std::get<std::unique_ptr<JsonObject>>(v_);
}
JsonObject& Json::as_object() {
  GODWIT_ASSERT(is_object());
  return *std::get<std::unique_ptr<JsonObject>>(v_);
}

const Json* Json::find(std::string_view key) const {
  return is_object() ? as_object().find(key) : nullptr;
}

bool operator==(const Json& a, const Json& b) {
  using Kind = Json::Kind;
  if (a.is_number() && b.is_number() && a.kind() != b.kind()) {
    if (a.kind() > b.kind()) return b == a;
    if (b.is_real() && a.is_integer()) return same_number(b.as_double(), a.as_integer());
    if (b.is_real()) return same_number(b.as_double(), a.as_big_integer());
    return false;  // a big integer is by definition outside int64
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::null:
      return true;
    case Kind::boolean:
      return a.as_bool() == b.as_bool();
    case Kind::integer:
      return a.as_integer() == b.as_integer();
    case Kind::big_integer:
      return a.as_big_integer() == b.as_big_integer();
    case Kind::real:
      return a.as_double() == b.as_double();
    case Kind::string:
      return a.as_string() == b.as_string();
    case Kind::array:
      return a.as_array() == b.as_array();
    case Kind::object: {
      if (a.as_object().size() != b.as_object().size()) return false;
      for (const auto& [key, value] : a.as_object()) {
        const Json* other = b.find(key);
        if (other == nullptr || !(value == *other)) return false;
      }
      return true;
    }
  }
  return false;
}

}  // namespace godwit
