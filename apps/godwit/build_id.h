// What exactly this binary is: shown by --version, /server_info and bug reports.
#pragma once

#include <string_view>

namespace godwit {

// "0.1.0+63d8f30abcde, GNU 12.2.0, Release, cpu": version, commit ("+dirty" when the tree had changes),
// compiler, build type, backends.
std::string_view build_id();

}  // namespace godwit
