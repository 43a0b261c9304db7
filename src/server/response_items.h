// Output items of a response and their JSON (api spec §4.10).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "server/choice_output.h"

namespace godwit::server {

enum class ItemKind : uint8_t { reasoning, message, function_call };
enum class ItemStatus : uint8_t { in_progress, completed, incomplete };

struct OutputItem {
  ItemKind kind = ItemKind::message;
  std::string id;
  std::string text;  // of the one part, or the arguments
  std::string call_id;
  std::string name;
  ItemStatus status = ItemStatus::in_progress;
};

std::string_view name_of(ItemStatus status);
// "output_text" in response.output_text.delta
std::string_view text_event(ItemKind kind);
std::string item_id(ItemKind kind, std::string_view seed, size_t index);

// An item in progress is written as it was added: without text.
void append_item(std::string& out, const OutputItem& item);
void append_part(std::string& out, const OutputItem& item);
void append_responses_usage(std::string& out, const Usage& usage);

// The items as one assistant message of the chat form. `promoted`: the reasoning turned out to be the answer
// and is there as such, too.
std::string chat_message_of(const std::vector<OutputItem>& items, bool promoted);

}  // namespace godwit::server
