// What Python's json module makes of a document: the columns were printed by Python 3.11 once.
#include <gtest/gtest.h>

#include "base/json.h"

namespace godwit {
namespace {

struct Row {
  const char* document;
  const char* plain;     // json.dumps(v, ensure_ascii=False)
  const char* ascii;     // json.dumps(v)
  const char* indented;  // json.dumps(v, ensure_ascii=False, indent=2)
  const char* sorted;    // json.dumps(v, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
};

// clang-format off
const Row kRows[] = {
    {R"j(0)j", R"j(0)j", R"j(0)j", R"j(0)j", R"j(0)j"},
    {R"j(-0)j", R"j(0)j", R"j(0)j", R"j(0)j", R"j(0)j"},
    {R"j(-0.0)j", R"j(-0.0)j", R"j(-0.0)j", R"j(-0.0)j", R"j(-0.0)j"},
    {R"j(1)j", R"j(1)j", R"j(1)j", R"j(1)j", R"j(1)j"},
    {R"j(1.0)j", R"j(1.0)j", R"j(1.0)j", R"j(1.0)j", R"j(1.0)j"},
    {R"j(1e5)j", R"j(100000.0)j", R"j(100000.0)j", R"j(100000.0)j", R"j(100000.0)j"},
    {R"j(1E+22)j", R"j(1e+22)j", R"j(1e+22)j", R"j(1e+22)j", R"j(1e+22)j"},
    {R"j(1e16)j", R"j(1e+16)j", R"j(1e+16)j", R"j(1e+16)j", R"j(1e+16)j"},
    {R"j(1e15)j", R"j(1000000000000000.0)j", R"j(1000000000000000.0)j", R"j(1000000000000000.0)j", R"j(1000000000000000.0)j"},
    {R"j(123456789012345680.0)j", R"j(1.2345678901234568e+17)j", R"j(1.2345678901234568e+17)j", R"j(1.2345678901234568e+17)j", R"j(1.2345678901234568e+17)j"},
    {R"j(0.0001)j", R"j(0.0001)j", R"j(0.0001)j", R"j(0.0001)j", R"j(0.0001)j"},
    {R"j(0.00001)j", R"j(1e-05)j", R"j(1e-05)j", R"j(1e-05)j", R"j(1e-05)j"},
    {R"j(1.5e-7)j", R"j(1.5e-07)j", R"j(1.5e-07)j", R"j(1.5e-07)j", R"j(1.5e-07)j"},
    {R"j(3.141592653589793)j", R"j(3.141592653589793)j", R"j(3.141592653589793)j", R"j(3.141592653589793)j", R"j(3.141592653589793)j"},
    {R"j(5e-324)j", R"j(5e-324)j", R"j(5e-324)j", R"j(5e-324)j", R"j(5e-324)j"},
    {R"j(1.7976931348623157e308)j", R"j(1.7976931348623157e+308)j", R"j(1.7976931348623157e+308)j", R"j(1.7976931348623157e+308)j", R"j(1.7976931348623157e+308)j"},
    {R"j(1e-400)j", R"j(0.0)j", R"j(0.0)j", R"j(0.0)j", R"j(0.0)j"},
    {R"j(0.1)j", R"j(0.1)j", R"j(0.1)j", R"j(0.1)j", R"j(0.1)j"},
    {R"j(100.0)j", R"j(100.0)j", R"j(100.0)j", R"j(100.0)j", R"j(100.0)j"},
    {R"j(-12.5)j", R"j(-12.5)j", R"j(-12.5)j", R"j(-12.5)j", R"j(-12.5)j"},
    {R"j(2.5e+0)j", R"j(2.5)j", R"j(2.5)j", R"j(2.5)j", R"j(2.5)j"},
    {R"j(9223372036854775807)j", R"j(9223372036854775807)j", R"j(9223372036854775807)j", R"j(9223372036854775807)j", R"j(9223372036854775807)j"},
    {R"j(9223372036854775808)j", R"j(9223372036854775808)j", R"j(9223372036854775808)j", R"j(9223372036854775808)j", R"j(9223372036854775808)j"},
    {R"j(-9223372036854775808)j", R"j(-9223372036854775808)j", R"j(-9223372036854775808)j", R"j(-9223372036854775808)j", R"j(-9223372036854775808)j"},
    {R"j(-9223372036854775809)j", R"j(-9223372036854775809)j", R"j(-9223372036854775809)j", R"j(-9223372036854775809)j", R"j(-9223372036854775809)j"},
    {R"j(123456789012345678901234567890)j", R"j(123456789012345678901234567890)j", R"j(123456789012345678901234567890)j", R"j(123456789012345678901234567890)j", R"j(123456789012345678901234567890)j"},
    {R"j(true)j", R"j(true)j", R"j(true)j", R"j(true)j", R"j(true)j"},
    {R"j(null)j", R"j(null)j", R"j(null)j", R"j(null)j", R"j(null)j"},
    {R"j("")j", R"j("")j", R"j("")j", R"j("")j", R"j("")j"},
    {R"j("a\"b\\c\/d\b\f\n\r\t")j", R"j("a\"b\\c/d\b\f\n\r\t")j", R"j("a\"b\\c/d\b\f\n\r\t")j", R"j("a\"b\\c/d\b\f\n\r\t")j", R"j("a\"b\\c/d\b\f\n\r\t")j"},
    {R"j("\u0000\u001f\u007f\u0080")j", "\"\\u0000\\u001f\x7f""\xc2\x80""\"", R"j("\u0000\u001f\u007f\u0080")j", "\"\\u0000\\u001f\x7f""\xc2\x80""\"", "\"\\u0000\\u001f\x7f""\xc2\x80""\""},
    {R"j("\u00e9\u2028\ud83d\ude00")j", "\"é\xe2\x80\xa8""😀\"", R"j("\u00e9\u2028\ud83d\ude00")j", "\"é\xe2\x80\xa8""😀\"", "\"é\xe2\x80\xa8""😀\""},
    {R"j("<>&'")j", R"j("<>&'")j", R"j("<>&'")j", R"j("<>&'")j", R"j("<>&'")j"},
    {R"j("ä水😀")j", R"j("ä水😀")j", R"j("\u00e4\u6c34\ud83d\ude00")j", R"j("ä水😀")j", R"j("ä水😀")j"},
    {R"j([])j", R"j([])j", R"j([])j", R"j([])j", R"j([])j"},
    {R"j({})j", R"j({})j", R"j({})j", R"j({})j", R"j({})j"},
    {R"j([ ])j", R"j([])j", R"j([])j", R"j([])j", R"j([])j"},
    {R"j({ })j", R"j({})j", R"j({})j", R"j({})j", R"j({})j"},
    {R"j([1,[2,[3,[]]],{}])j", R"j([1, [2, [3, []]], {}])j", R"j([1, [2, [3, []]], {}])j", R"j([
  1,
  [
    2,
    [
      3,
      []
    ]
  ],
  {}
])j", R"j([1,[2,[3,[]]],{}])j"},
    {R"j({"b":1,"a":{"d":[1,2],"c":null},"b":2})j", R"j({"b": 2, "a": {"d": [1, 2], "c": null}})j", R"j({"b": 2, "a": {"d": [1, 2], "c": null}})j", R"j({
  "b": 2,
  "a": {
    "d": [
      1,
      2
    ],
    "c": null
  }
})j", R"j({"a":{"c":null,"d":[1,2]},"b":2})j"},
    {R"j({"z":1,"":2,"é":3,"Z":4})j", R"j({"z": 1, "": 2, "é": 3, "Z": 4})j", R"j({"z": 1, "": 2, "\u00e9": 3, "Z": 4})j", R"j({
  "z": 1,
  "": 2,
  "é": 3,
  "Z": 4
})j", R"j({"":2,"Z":4,"z":1,"é":3})j"},
    {R"j(  [true , false]
)j", R"j([true, false])j", R"j([true, false])j", R"j([
  true,
  false
])j", R"j([true,false])j"},
    {R"j({"a":1.0,"b":[{"c":"\u00ff"}]})j", R"j({"a": 1.0, "b": [{"c": "ÿ"}]})j", R"j({"a": 1.0, "b": [{"c": "\u00ff"}]})j", R"j({
  "a": 1.0,
  "b": [
    {
      "c": "ÿ"
    }
  ]
})j", R"j({"a":1.0,"b":[{"c":"ÿ"}]})j"},
};
// clang-format on

TEST(JsonPython, DumpsEveryStyleAsPythonDoes) {
  for (const Row& row : kRows) {
    auto value = parse_json(row.document);
    ASSERT_TRUE(value.ok()) << row.document << ": " << value.error().message;
    EXPECT_EQ(dump_json(*value), row.plain) << row.document;
    EXPECT_EQ(dump_json(*value, {.ensure_ascii = true}), row.ascii) << row.document;
    EXPECT_EQ(dump_json(*value, {.indent = 2}), row.indented) << row.document;
    JsonStyle sorted = JsonStyle::compact();
    sorted.sort_keys = true;
    EXPECT_EQ(dump_json(*value, sorted), row.sorted) << row.document;
  }
}

TEST(JsonPython, FloatsPrintAsRepr) {
  EXPECT_EQ(python_float(1.0), "1.0");
  EXPECT_EQ(python_float(1e22), "1e+22");
  EXPECT_EQ(python_float(1e15), "1000000000000000.0");
  EXPECT_EQ(python_float(-0.0), "-0.0");
  EXPECT_EQ(python_float(1e-5), "1e-05");
  EXPECT_EQ(python_float(1.0 / 0.0), "inf");
  EXPECT_EQ(python_float(-1.0 / 0.0), "-inf");
}

}  // namespace
}  // namespace godwit
