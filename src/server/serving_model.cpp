#include "server/serving_model.h"

#include <algorithm>

namespace godwit::server {

bool ServingModel::serves(std::string_view name) const {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace godwit::server
