// Any bytes as text: encoding gives back the text (with malformed UTF-8 replaced), and any bytes as ids:
// streaming equals decoding at once.
#include <cstdlib>
#include <string>

#include "base/json.h"
#include "tokenizer/byte_level.h"
#include "tokenizer/detokenizer.h"
#include "tokenizer/utf8.h"

namespace {

using namespace godwit::tokenizer;

// A byte-level vocabulary of single bytes, a few merges and added tokens that overlap.
std::string sample() {
  std::string pattern, vocab;
  godwit::append_json_string(pattern, kGlmPattern);
  for (int byte = 0; byte < 256; ++byte) {
    char c = static_cast<char>(byte);
    godwit::append_json_string(vocab, encode_byte_level({&c, 1}));
    vocab += ":" + std::to_string(byte) + ",";
  }
  return R"({"added_tokens":[{"id":259,"content":"<a>","special":true},{"id":260,"content":"<a><b>"},)"
         R"({"id":261,"content":"b><"}],"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split",)"
         R"("pattern":{"Regex":)" +
         pattern +
         R"(},"behavior":"Isolated"},{"type":"ByteLevel","use_regex":false}]},"decoder":{"type":"ByteLevel"},)"
         R"("model":{"type":"BPE","vocab":{)" +
         vocab + R"("ab":256,"aba":257,"==":258},"merges":["a b","ab a","= ="]}})";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto tokenizer = Tokenizer::from_json(sample()).value();
  std::string_view text(reinterpret_cast<const char*>(data), size);
  auto ids = tokenizer->encode(text);
  if (!ids.ok() || tokenizer->decode(*ids) != replace_malformed(text)) std::abort();

  std::vector<int32_t> random_ids(size / 2);
  for (size_t i = 0; i < random_ids.size(); ++i) random_ids[i] = data[2 * i] | (data[2 * i + 1] & 1) << 8;
  Detokenizer detokenizer(tokenizer);
  std::string streamed;
  for (int32_t id : random_ids) {
    std::string now = detokenizer.push(id);
    if (!is_utf8(now)) std::abort();
    streamed += now;
  }
  if (streamed + detokenizer.flush() != tokenizer->decode(random_ids)) std::abort();
  return 0;
}
