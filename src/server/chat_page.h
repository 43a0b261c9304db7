// The page at "/": a chat with this server, one static file inside the binary.
#pragma once

#include <string_view>

namespace godwit::server {

std::string_view chat_page();

}  // namespace godwit::server
