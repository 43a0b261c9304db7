// The document at /openapi.json: every route and every field of a request. tests/clients/test_openapi.py
// holds it against the code and the running server.
#pragma once

#include <string_view>

namespace godwit::server {

std::string_view openapi_document();

}  // namespace godwit::server
