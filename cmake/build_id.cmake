# cmake -P script, run at every build: the commit may have changed since configure. configure_file leaves an unchanged
# file alone, so only a new commit recompiles this one file.
execute_process(COMMAND git -C ${SOURCE_DIR} describe --always --dirty=.dirty --abbrev=12
                OUTPUT_VARIABLE GODWIT_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT GODWIT_COMMIT)
  set(GODWIT_COMMIT "unknown")
endif()
configure_file(${SOURCE_DIR}/apps/godwit/build_id.cpp.in ${OUTPUT} @ONLY)
