#include "config/flag_values.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>
#include <optional>
#include <string_view>

namespace godwit {
namespace {

std::optional<int64_t> integer_in(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool is_origin(std::string_view text) {
  if (text == "*" || text == "null") return true;
  const size_t scheme = text.find("://");
  if (scheme == text.npos || scheme == 0) return false;
  text.remove_prefix(scheme + 3);
  return !text.empty() && text.find_first_of("/?#@ \t\r\n") == text.npos;
}

}  // namespace

CLI::Validator whole_number(int64_t low, int64_t high) {
  return {[low, high](std::string& text) {
            const auto value = integer_in(text);
            if (!value || *value < low || *value > high)
              return fmt::format("must be a whole number from {} to {}, got '{}'", low, high, text);
            text = std::to_string(*value);
            return std::string();
          },
          ""};
}

CLI::Validator byte_size() {
  return {[](std::string& text) {
            std::string bytes = text;
            while (bytes.size() > 1 && bytes[0] == '0' && bytes[1] >= '0' && bytes[1] <= '9')
              bytes.erase(0, 1);
            std::string error;
            try {
              error = CLI::AsSizeValue(false)(bytes);
            } catch (const CLI::Error& failure) {
              error = failure.what();
            }
            const auto value = integer_in(bytes);
            if (!error.empty() || !value || *value < 0)
              return fmt::format(
                  "must be bytes, or a whole number with KiB, MiB, GiB or TiB, below 8192 PiB; got '{}'",
                  text);
            text = bytes;
            return std::string();
          },
          ""};
}

CLI::Validator web_origin() {
  return {[](std::string& text) {
            if (is_origin(text)) return std::string();
            return fmt::format(
                "must be scheme://host or scheme://host:port as browsers send it, null, or *; got '{}'",
                text);
          },
          ""};
}

}  // namespace godwit
