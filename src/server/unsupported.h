// Fields that would change the answer and that nothing here honours yet: refused by name, never ignored.
#pragma once

#include "server/fields.h"

namespace godwit::server {

void refuse_unsupported(Fields& fields);

}  // namespace godwit::server
