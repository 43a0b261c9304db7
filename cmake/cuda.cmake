# The CUDA backend (GODWIT_CUDA): all kernels ahead of time, nothing for the driver to compile.
set(GODWIT_CUDA_ARCHITECTURES "90a;100" CACHE STRING "Architectures of the CUDA backend: 90a Hopper, 100 Blackwell")
find_package(CUDAToolkit 13 REQUIRED)
set(CMAKE_CUDA_COMPILER ${CUDAToolkit_NVCC_EXECUTABLE})
# Written out below: CMake 3.25 does not know 90a.
set(CMAKE_CUDA_ARCHITECTURES OFF)
set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
enable_language(CUDA)
# Nor C++20 in nvcc.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)

# godwit_cuda(room dir): adds the backend under src/dir to a room. Host sources are part of the room; kernels are an
# object library of their own, because nvcc does not know the flags of godwit_flags.
# --fmad=false: what fuses is written in the kernels (compare flags.cmake).
function(godwit_cuda room dir)
  file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${dir}/*.cu)
  file(GLOB_RECURSE host CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${dir}/*.cpp)
  add_library(godwit_cuda_kernels OBJECT ${kernels})
  target_include_directories(godwit_cuda_kernels PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_compile_options(godwit_cuda_kernels PRIVATE
    --fmad=false --expt-relaxed-constexpr --extended-lambda -Werror=all-warnings -Xcompiler=-Wall,-Wextra)
  foreach(architecture ${GODWIT_CUDA_ARCHITECTURES})
    target_compile_options(godwit_cuda_kernels PRIVATE
      -gencode=arch=compute_${architecture},code=sm_${architecture})
  endforeach()
  target_sources(godwit_${room} PRIVATE ${host} $<TARGET_OBJECTS:godwit_cuda_kernels>)
  target_link_libraries(godwit_${room} PUBLIC CUDA::cudart_static)
  # Only the factory knows; everything else is compiled alike with and without the backend.
  set_source_files_properties(kernels/make_ops.cpp PROPERTIES COMPILE_DEFINITIONS GODWIT_CUDA=1)
endfunction()
