// What the grammar tests share: the tiny model's tokenizer, ways of cutting a text into tokens, and JSON
// Schemas made at random together with a validator and a document generator that know nothing of automata.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "base/json.h"
#include "grammar/matcher.h"

namespace godwit::grammar::test {

using Random = std::mt19937;

const std::shared_ptr<const tokenizer::Tokenizer>& tiny_tokenizer();
const std::shared_ptr<const TokenIndex>&
tiny_index();  // 16 ids beyond the tokenizer's; ends: <|endoftext|>, <|user|>
int32_t end_id();

Json json(std::string_view text);
std::shared_ptr<const Grammar> compiled(const GrammarSpec& spec);  // must compile
std::shared_ptr<const Grammar> schema_grammar(std::string_view schema);
std::string compile_error(std::string_view schema);  // must not compile

// The ids of `text`: as the tokenizer cuts it, one a byte, or at random.
enum class Cut : uint8_t { tokenizer, bytes, random };
std::vector<int32_t> tokens_of(std::string_view text, Cut cut, Random& random);

// Whether the matcher takes the whole text and may end there; checks that a mask allows each id on the way.
bool takes(const std::shared_ptr<const Grammar>& grammar, std::string_view text);

bool allows(const std::vector<uint32_t>& mask, int32_t id);
std::vector<uint32_t> mask_of(Matcher& matcher);
// A text drawn at random under the masks; empty when it did not end within `steps` tokens.
std::string draw(Matcher& matcher, Random& random, size_t steps);

// A schema of the subset, with local definitions; `depth` more containers may nest.
Json random_schema(Random& random);
// A value that is valid under `schema`, its members in the schema's order.
Json random_document(const Json& schema, const Json& root, Random& random, int depth);
// Plain JSON Schema semantics. Empty when valid, else what is wrong.
std::string violation(const Json& value, const Json& schema, const Json& root);

}  // namespace godwit::grammar::test
