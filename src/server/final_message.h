// How the prompt ends: with a new turn of the assistant, or inside the last message, which the model goes on
// writing (api spec §2.10, prefill).
#pragma once

#include "chat/template.h"
#include "server/fields.h"

namespace godwit::server {

enum class Ending : uint8_t { new_turn, final_message, nothing };

// continue_final_message and add_generation_prompt. `nothing`: no turn is opened, and the last message is not
// the assistant's. Refusals are kept in `fields`.
Ending read_ending(Fields& fields);

// Renders so that the text ends as asked. Templates close the think block of a finished turn and strip its
// text, so the end of a message that goes on is put back here: text after <think> without </think> continues
// the thinking, anything else the answer. Errors: invalid_request.
Result<chat::Rendered> render_turns(const chat::ChatTemplate& chat_template, const chat::TemplateInput& input,
                                    Ending ending);

}  // namespace godwit::server
