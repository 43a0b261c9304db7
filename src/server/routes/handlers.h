// The handlers that the route table names, one file a subject.
#pragma once

#include "server/routes/route_table.h"

namespace godwit::server {

// generate.cpp
void post_chat_completions(ServerContext& context, HttpRequest&& request, const Writer& writer);
void post_completions(ServerContext& context, HttpRequest&& request, const Writer& writer);
void post_messages(ServerContext& context, HttpRequest&& request, const Writer& writer);
void post_responses(ServerContext& context, HttpRequest&& request, const Writer& writer);
// responses.cpp
void get_response(ServerContext& context, HttpRequest&& request, const Writer& writer);
void delete_response(ServerContext& context, HttpRequest&& request, const Writer& writer);
// embeddings.cpp
void post_embeddings(ServerContext& context, HttpRequest&& request, const Writer& writer);
// models.cpp
void get_models(ServerContext& context, HttpRequest&& request, const Writer& writer);
void get_model(ServerContext& context, HttpRequest&& request, const Writer& writer);
// health.cpp
void get_livez(ServerContext& context, HttpRequest&& request, const Writer& writer);
void get_readyz(ServerContext& context, HttpRequest&& request, const Writer& writer);
void get_startupz(ServerContext& context, HttpRequest&& request, const Writer& writer);
void get_health(ServerContext& context, HttpRequest&& request, const Writer& writer);
// info.cpp
void get_metrics(ServerContext& context, HttpRequest&& request, const Writer& writer);
void get_server_info(ServerContext& context, HttpRequest&& request, const Writer& writer);
void get_version(ServerContext& context, HttpRequest&& request, const Writer& writer);
void get_openapi(ServerContext& context, HttpRequest&& request, const Writer& writer);
void get_page(ServerContext& context, HttpRequest&& request, const Writer& writer);
// admin.cpp
void post_flush_cache(ServerContext& context, HttpRequest&& request, const Writer& writer);
// tokenize.cpp
void post_tokenize(ServerContext& context, HttpRequest&& request, const Writer& writer);
void post_detokenize(ServerContext& context, HttpRequest&& request, const Writer& writer);
void get_tokenizer_info(ServerContext& context, HttpRequest&& request, const Writer& writer);
void post_count_tokens(ServerContext& context, HttpRequest&& request, const Writer& writer);

}  // namespace godwit::server
