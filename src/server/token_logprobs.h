// Logprobs on the wire, for both routes (api spec §3.10, §4.6).
#pragma once

#include <string>

#include "engine/token_sink.h"
#include "tokenizer/tokenizer.h"

namespace godwit::server {

// {"token","logprob","bytes","top_logprobs":[…]}: one entry of a chat choice's logprobs.
void append_chat_logprob(std::string& out, const tokenizer::Tokenizer& tokenizer, const engine::Token& token,
                         const engine::TopLogprobs* top);

// {"text": logprob, …} of the alternatives and the sampled token itself: one entry of a completion's
// top_logprobs. Alternatives with equal text keep the higher value.
void append_completion_alternatives(std::string& out, const tokenizer::Tokenizer& tokenizer,
                                    const engine::Token& token, const engine::TopLogprobs* top);

// A finite JSON number: -inf, which a masked alternative has, becomes -9999.
void append_logprob(std::string& out, float value);

// The id's bytes as text, ill-formed ones as U+FFFD.
std::string token_text(const tokenizer::Tokenizer& tokenizer, int32_t id);

}  // namespace godwit::server
