#include "chat/jinja/filters.h"

#include "chat/jinja/failure.h"

namespace godwit::chat::jinja {

Value apply_filter(Runtime& runtime, std::string_view name, const Value& input, Arguments& arguments) {
  runtime.step();
  for (const auto find : {find_text_filter, find_list_filter, find_selection_filter, find_number_filter}) {
    if (const FilterBody body = find(name)) return body(runtime, input, arguments);
  }
  fail("no filter named '{}'", name);
}

}  // namespace godwit::chat::jinja
