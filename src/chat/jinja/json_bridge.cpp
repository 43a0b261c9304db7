#include "chat/jinja/json_bridge.h"

#include "chat/jinja/failure.h"
#include "chat/jinja/print.h"

namespace godwit::chat::jinja {
namespace {

std::string key_text(Runtime& runtime, const Value& key) {
  switch (key.kind) {
    case Kind::none:
      return "null";
    case Kind::boolean:
      return key.boolean ? "true" : "false";
    case Kind::text:
    case Kind::integer:
    case Kind::big_integer:
    case Kind::real: {
      std::string out;
      append_str(runtime, out, key);
      return out;
    }
    default:
      fail("keys must be str, int, float, bool or None, not {}", type_name(key));
  }
}

}  // namespace

Value from_json(Runtime& runtime, const Json& json) {
  const Depth depth(runtime);
  switch (json.kind()) {
    case Json::Kind::null:
      return Value::none();
    case Json::Kind::boolean:
      return Value::of(json.as_bool());
    case Json::Kind::integer:
      return Value::of(json.as_integer());
    case Json::Kind::big_integer:
      return Value::big(json.as_big_integer());
    case Json::Kind::real:
      return Value::of(json.as_double());
    case Json::Kind::string:
      return Value::of(data_text(json.as_string()));
    case Json::Kind::array: {
      Sequence& list = runtime.heap.sequence(json.as_array().size());
      for (const Json& item : json.as_array()) runtime.heap.add(list, from_json(runtime, item));
      return Value::of(Kind::list, &list);
    }
    case Json::Kind::object:
      break;
  }
  Dict& dict = runtime.heap.dict();
  for (const auto& [key, value] : json.as_object()) {
    runtime.heap.set(dict, Value::of(data_text(key)), from_json(runtime, value));
  }
  return Value::of(&dict);
}

Json to_json(Runtime& runtime, const Value& v) {
  const Depth depth(runtime);
  runtime.step();
  switch (v.kind) {
    case Kind::none:
      return Json();
    case Kind::boolean:
      return Json(v.boolean);
    case Kind::integer:
      return Json(v.integer);
    case Kind::big_integer:
      return Json::big_integer(std::string(v.text.view()));
    case Kind::real:
      return Json(v.real);
    case Kind::text:
      runtime.heap.charge(v.text.size);
      return Json(v.text.view());
    case Kind::list:
    case Kind::tuple: {
      JsonArray array;
      runtime.heap.charge(v.sequence->items.size() * sizeof(Json));
      array.reserve(v.sequence->items.size());
      for (const Value& item : v.sequence->items) array.push_back(to_json(runtime, item));
      return Json(std::move(array));
    }
    case Kind::dict: {
      JsonObject object;
      runtime.heap.charge(v.dict->members.size() * 2 * sizeof(Json));
      for (const auto& [key, value] : v.dict->members)
        object.set(key_text(runtime, key), to_json(runtime, value));
      return Json(std::move(object));
    }
    default:
      fail("Object of type {} is not JSON serializable", type_name(v));
  }
}

}  // namespace godwit::chat::jinja
