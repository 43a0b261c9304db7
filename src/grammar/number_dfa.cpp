#include "grammar/number_dfa.h"

#include <charconv>
#include <map>
#include <string>

namespace godwit::grammar {
namespace {

// A bound as decimal digits.
struct Decimal {
  bool negative = false;
  std::string whole;     // no leading zeros, at least one digit
  std::string fraction;  // no trailing zeros
  bool zero() const { return whole == "0" && fraction.empty(); }
};

Decimal decimal(const Json& value) {
  std::string text;
  if (value.is_integer()) {
    text = std::to_string(value.as_integer());
  } else if (value.is_real()) {
    char buffer[1100];  // the fixed form of any double
    auto end = std::to_chars(buffer, buffer + sizeof buffer, value.as_double(), std::chars_format::fixed);
    text.assign(buffer, end.ptr);
  } else {
    text = value.as_big_integer();
  }
  Decimal out;
  out.negative = text[0] == '-';
  if (out.negative) text.erase(0, 1);
  const size_t point = text.find('.');
  out.whole = text.substr(0, point);
  if (point != std::string::npos) out.fraction = text.substr(point + 1);
  while (!out.fraction.empty() && out.fraction.back() == '0') out.fraction.pop_back();
  out.negative = out.negative && !out.zero();
  return out;
}

enum class Phase : uint8_t {
  start,
  minus,
  zero,
  whole,
  point,
  fraction,
  exponent,
  exponent_sign,
  exponent_digits
};

// How far a number has been read, and how it compares so far with the magnitude of each bound.
struct Place {
  Phase phase = Phase::start;
  bool negative = false;
  bool nonzero = false;
  uint8_t digits = 0;        // in this part
  int8_t order[2] = {0, 0};  // against min and max: -1 smaller, 0 equal so far, 1 larger
  auto operator<=>(const Place&) const = default;
};

class Builder {
 public:
  explicit Builder(const NumberRange& range) : integer_(range.integer) {
    const std::optional<NumberBound>* bounds[2] = {&range.min, &range.max};
    for (int i = 0; i < 2; ++i) {
      if (!*bounds[i]) continue;
      bound_[i] = decimal((*bounds[i])->value);
      exclusive_[i] = (*bounds[i])->exclusive;
    }
  }

  std::optional<ByteDfa> build() {
    id_of({});
    std::vector<ByteDfa::State> states;
    for (size_t i = 0; i < places_.size(); ++i) {
      ByteDfa::State state;
      const Place place = places_[i];
      state.accept = accepts(place);
      auto to = [&](char c, const Place& next) {
        const auto byte = static_cast<uint8_t>(c);
        state.edges.push_back({byte, byte, id_of(next)});
      };
      edges(place, to);
      states.push_back(std::move(state));
    }
    return ByteDfa::make(std::move(states));
  }

 private:
  uint32_t id_of(const Place& place) {
    auto [id, added] = ids_.try_emplace(place, static_cast<uint32_t>(places_.size()));
    if (added) places_.push_back(place);
    return id->second;
  }

  // The place after one more digit of the whole part or the fraction.
  Place digit(Place place, char c, Phase phase) const {
    for (int i = 0; i < 2; ++i) {
      if (!bound_[i] || place.order[i] != 0) continue;
      const std::string& digits = phase == Phase::fraction ? bound_[i]->fraction : bound_[i]->whole;
      const char other = place.digits < digits.size() ? digits[place.digits] : '0';
      if (phase != Phase::fraction && place.digits >= digits.size())
        continue;  // longer: decided at the point
      place.order[i] = static_cast<int8_t>(c < other ? -1 : c > other ? 1 : 0);
    }
    place.phase = phase;
    place.nonzero |= c != '0';
    ++place.digits;
    return place;
  }

  // The order once the whole part is over: a longer one is larger.
  Place end_of_whole(Place place) const {
    for (int i = 0; i < 2; ++i) {
      if (!bound_[i]) continue;
      const size_t length = bound_[i]->whole.size();
      if (place.digits != length) place.order[i] = static_cast<int8_t>(place.digits > length ? 1 : -1);
    }
    return place;
  }

  template <class To>
  void edges(const Place& place, const To& to) {
    switch (place.phase) {
      case Phase::start:
        to('-', Place{Phase::minus, true});
        [[fallthrough]];
      case Phase::minus:
        to('0', digit(place, '0', Phase::zero));
        for (char c = '1'; c <= '9'; ++c) to(c, digit(place, c, Phase::whole));
        return;
      case Phase::zero:
        point(place, to);
        return exponent(to);
      case Phase::whole:
        point(place, to);
        if (place.digits < kMaxIntegerDigits) {
          for (char c = '0'; c <= '9'; ++c) to(c, digit(place, c, Phase::whole));
        }
        return exponent(to);
      case Phase::point:
      case Phase::fraction:
        if (place.digits < kMaxFractionDigits) {
          for (char c = '0'; c <= '9'; ++c) to(c, digit(place, c, Phase::fraction));
        }
        if (place.phase == Phase::fraction) exponent(to);
        return;
      case Phase::exponent:
        for (char c : {'+', '-'}) to(c, Place{Phase::exponent_sign});
        [[fallthrough]];
      case Phase::exponent_sign:
      case Phase::exponent_digits: {
        const uint8_t digits = place.phase == Phase::exponent_digits ? place.digits : 0;
        if (digits >= kMaxExponentDigits) return;
        Place next{Phase::exponent_digits};
        next.digits = digits + 1;
        for (char c = '0'; c <= '9'; ++c) to(c, next);
        return;
      }
    }
  }

  template <class To>
  void point(const Place& place, const To& to) {
    if (integer_) return;
    Place next = end_of_whole(place);
    next.phase = Phase::point;
    next.digits = 0;
    to('.', next);
  }

  template <class To>
  void exponent(const To& to) {
    if (integer_ || bound_[0] || bound_[1]) return;
    for (char c : {'E', 'e'}) to(c, Place{Phase::exponent});
  }

  bool accepts(const Place& place) const {
    switch (place.phase) {
      case Phase::zero:
      case Phase::whole:
        return in_range(end_of_fraction(end_of_whole(place), 0));
      case Phase::fraction:
        return in_range(end_of_fraction(place, place.digits));
      case Phase::exponent_digits:
        return true;
      default:
        return false;
    }
  }

  // The order once a fraction of so many digits is over: a bound with more of them is larger.
  Place end_of_fraction(Place place, size_t digits) const {
    for (int i = 0; i < 2; ++i) {
      if (bound_[i] && place.order[i] == 0 && digits < bound_[i]->fraction.size()) place.order[i] = -1;
    }
    return place;
  }

  // -1, 0, 1: the number read against bound i.
  int against(const Place& place, int i) const {
    const bool negative = place.negative && place.nonzero;
    if (negative != bound_[i]->negative) return negative ? -1 : 1;
    return negative ? -place.order[i] : place.order[i];
  }

  bool in_range(const Place& place) const {
    if (bound_[0]) {
      const int order = against(place, 0);
      if (order < 0 || (order == 0 && exclusive_[0])) return false;
    }
    if (bound_[1]) {
      const int order = against(place, 1);
      if (order > 0 || (order == 0 && exclusive_[1])) return false;
    }
    return true;
  }

  bool integer_;
  std::optional<Decimal> bound_[2];
  bool exclusive_[2] = {false, false};
  std::map<Place, uint32_t> ids_;
  std::vector<Place> places_;
};

}  // namespace

std::optional<ByteDfa> number_dfa(const NumberRange& range) {
  return Builder(range).build();
}

}  // namespace godwit::grammar
