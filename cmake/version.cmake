# godwit_build_id(target): adds build_id.cpp, kept up to date by the custom target build_id.
function(godwit_build_id target)
  set(output ${CMAKE_BINARY_DIR}/generated/build_id.cpp)
  set(backends cpu)
  if(GODWIT_CUDA)
    set(backends cpu+cuda)
  endif()
  set(define_all -DSOURCE_DIR=${CMAKE_SOURCE_DIR} -DOUTPUT=${output} -DGODWIT_VERSION=${PROJECT_VERSION}
                 "-DGODWIT_COMPILER=${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
                 -DGODWIT_BUILD_TYPE=${CMAKE_BUILD_TYPE} -DGODWIT_BACKENDS=${backends})
  add_custom_target(build_id BYPRODUCTS ${output}
                    COMMAND ${CMAKE_COMMAND} ${define_all} -P ${CMAKE_SOURCE_DIR}/cmake/build_id.cmake
                    COMMENT "" VERBATIM)
  add_dependencies(${target} build_id)
  target_sources(${target} PRIVATE ${output})
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/apps/godwit)
endfunction()
