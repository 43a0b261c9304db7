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
// Arms what the environment variable GODWIT_ARM names: "engine.step:200,engine.stall:0:-1" (name, hits to
// skip, times). For drills with a whole server process.
void arm_from_environment();
bool hit(std::string_view name);  // thread safe

}  // namespace godwit::fault

#ifdef GODWIT_FAULTS
#define GODWIT_FAULT(name) (::godwit::fault::hit(name))
#else
#define GODWIT_FAULT(name) (false)
#endif
