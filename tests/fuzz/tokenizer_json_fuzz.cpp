// Any bytes as tokenizer.json: refused or loaded, and what loads encodes and decodes.
#include "tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto made = godwit::tokenizer::Tokenizer::from_json({reinterpret_cast<const char*>(data), size});
  if (!made.ok()) return 0;
  auto ids = (*made)->encode("Ab <s> 12'll\r\n\xF0\x9F\x98");
  if (ids.ok()) (*made)->decode(*ids);
  return 0;
}
