// The named checks of `godwit selftest`; CTest runs each as one test.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "selftest/report.h"
#include "selftest/rig.h"

namespace godwit::selftest {

struct Paths {
  std::filesystem::path models;   // tiny-glm5next, random-glm5next
  std::filesystem::path twins;    // their -fp8 twins, made by the build
  std::filesystem::path goldens;  // reference outputs
  std::filesystem::path scratch;  // for files made on the way
};

struct Check {
  std::string name;
  std::string what;  // one line for people
  std::function<Result<Report>(const Paths&, const RigOptions&)> run;
  bool engine = false;       // runs a whole engine, which the reference backend has not
  DType cache = DType::f32;  // format of its caches, which the backend must hold
};

const std::vector<Check>& all_checks();

}  // namespace godwit::selftest
