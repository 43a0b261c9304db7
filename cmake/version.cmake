# The build id: commit (and "+dirty"), compiler, build type. Written at configure time; a relink per commit is enough.
execute_process(COMMAND git -C ${CMAKE_SOURCE_DIR} describe --always --dirty=+dirty --abbrev=12
                OUTPUT_VARIABLE GODWIT_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT GODWIT_COMMIT)
  set(GODWIT_COMMIT "unknown")
endif()
