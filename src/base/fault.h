// Fault points, compiled into test builds only (GODWIT_FAULTS): GODWIT_FAULT("engine.step") is false until a
// test or the admin route arms the name. Release builds see a constant false.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace godwit::fault {

// Arms `name`: it fires on the hits after `skip`, `times` times (-1 = always).
void arm(std::string_view name, int64_t skip = 0, int64_t times = 1);
void disarm_all();
bool hit(std::string_view name);  // thread safe

}  // namespace godwit::fault

#ifdef GODWIT_FAULTS
#define GODWIT_FAULT(name) (::godwit::fault::hit(name))
#else
#define GODWIT_FAULT(name) (false)
#endif
