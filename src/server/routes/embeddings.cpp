#include "server/error_response.h"
#include "server/routes/handlers.h"

namespace godwit::server {

void post_embeddings(ServerContext& context, HttpRequest&&, const Writer& writer) {
  answer(
      context, "embeddings", writer,
      error_response(make_error(ErrorCode::unimplemented, "",
                                "the served model generates text and has no embeddings; ask a server with an "
                                "embedding model")));
}

}  // namespace godwit::server
