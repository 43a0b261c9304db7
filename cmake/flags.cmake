# Flags every translation unit shares, carried by the interface target godwit_flags.
add_library(godwit_flags INTERFACE)
target_include_directories(godwit_flags INTERFACE ${CMAKE_SOURCE_DIR}/src)
# -ffp-contract=off: whether a*b+c fuses must be written in the code, never left to the optimiser,
# or the seven gates (design §2) would depend on inlining.
target_compile_options(godwit_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wno-missing-field-initializers
                                              -ffp-contract=off -fno-math-errno -g1)
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  target_compile_options(godwit_flags INTERFACE -march=x86-64-v2)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # Debian's libfmt is built by GCC, which mangles vformat_to<char> in another way than clang 14.
  target_compile_definitions(godwit_flags INTERFACE FMT_HEADER_ONLY=1)
  target_compile_options(godwit_flags INTERFACE -Wno-gnu-zero-variadic-macro-arguments)
endif()
if(GODWIT_FAULTS)
  target_compile_definitions(godwit_flags INTERFACE GODWIT_FAULTS=1)
endif()
if(GODWIT_SANITIZE)
  target_compile_options(godwit_flags INTERFACE -fsanitize=${GODWIT_SANITIZE} -fno-omit-frame-pointer
                                                -fno-sanitize-recover=undefined)
  target_link_options(godwit_flags INTERFACE -fsanitize=${GODWIT_SANITIZE})
endif()
set(CMAKE_CXX_FLAGS_RELEASE "-O2")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O1 -g")
