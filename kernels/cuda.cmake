# The CUDA device: whether it is built, for which GPUs, and with which flags. Sets cuda_sources and
# cuda_libraries for the layer `kernels`.
set(NIGHTSWEEP_CUDA AUTO CACHE STRING "Build the CUDA device: AUTO (where nvcc is found), ON or OFF")
set_property(CACHE NIGHTSWEEP_CUDA PROPERTY STRINGS AUTO ON OFF)
# One architecture compiles in a few minutes; the preset release-cuda lists all that we support. 90a is
# 9.0 with its warpgroup products.
set(NIGHTSWEEP_CUDA_ARCHITECTURES 90a CACHE STRING "Compute capabilities without the dot: 80;86;89;90a;120")
set(least_nvcc_version 12.8)  # the first that knows compute capability 12.0

set(cuda_sources cuda/no_cuda.cc)
set(cuda_libraries "")
if(NIGHTSWEEP_CUDA STREQUAL "OFF")
  message(STATUS "CUDA: off, as asked for")
  return()
endif()

find_program(NIGHTSWEEP_NVCC NAMES $ENV{CUDACXX} nvcc HINTS $ENV{CUDA_PATH}/bin PATHS /usr/local/cuda/bin)
if(NOT NIGHTSWEEP_NVCC)
  if(NIGHTSWEEP_CUDA STREQUAL "ON")
    message(FATAL_ERROR "CUDA: NIGHTSWEEP_CUDA is ON and there is no nvcc (install the CUDA Toolkit, or set CUDACXX)")
  endif()
  message(STATUS "CUDA: off, no nvcc")
  return()
endif()

set(CMAKE_CUDA_COMPILER ${NIGHTSWEEP_NVCC})
set(CMAKE_CUDA_ARCHITECTURES ${NIGHTSWEEP_CUDA_ARCHITECTURES})
if(CMAKE_CXX_COMPILER_LAUNCHER AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS least_nvcc_version)
  if(NIGHTSWEEP_CUDA STREQUAL "ON")
    message(FATAL_ERROR "CUDA: expected nvcc ${least_nvcc_version} or later, found ${CMAKE_CUDA_COMPILER_VERSION}")
  endif()
  message(STATUS "CUDA: off, nvcc ${CMAKE_CUDA_COMPILER_VERSION} is older than ${least_nvcc_version}")
  return()
endif()
find_package(CUDAToolkit REQUIRED)
# CMake 3.25 does not know nvcc's flag for C++20.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
message(STATUS
  "CUDA: on, nvcc ${CMAKE_CUDA_COMPILER_VERSION}, compute capability ${NIGHTSWEEP_CUDA_ARCHITECTURES}")

# -fmad=false for the reason of -ffp-contract=off: two instances of one template must not differ in
# what the compiler fuses. Where a fused multiply-add is meant, the kernels say fmaf or __hfma2.
set(cuda_flags --expt-relaxed-constexpr -fmad=false -Xcompiler=-Wall,-Wextra,-ffp-contract=off)
if(NIGHTSWEEP_WERROR)
  list(APPEND cuda_flags -Werror=all-warnings)
endif()
add_compile_options("$<$<COMPILE_LANGUAGE:CUDA>:${cuda_flags}>")

# One instantiation a file, so that two cores build them side by side.
set(cuda_sources
  cuda/status.cc cuda/memory.cc cuda/probe.cc cuda/refusal.cc cuda/staging.cc cuda/packing.cc cuda/picker.cc
  cuda/attention.cc cuda/linear.cc cuda/cuda_device.cc
  cuda/host_copy.cu cuda/page_copy.cu cuda/rows.cu cuda/trap.cu cuda/rope.cu cuda/sampling.cu cuda/attention_merge.cu
  cuda/linear_input.cu cuda/linear_pack.cu cuda/linear_exact.cu cuda/linear_compare.cu)
foreach(head_dim 32 64 80 96 128 256)
  list(APPEND cuda_sources cuda/attention_d${head_dim}.cu)
endforeach()
foreach(type f32 f16 bf16 q4_0 q4_1 q5_0 q5_1 q8_0 q4_k q5_k q6_k)
  list(APPEND cuda_sources cuda/linear_${type}.cu cuda/linear_wide_${type}.cu)
endforeach()
# The runtime finds the driver when the program runs, so the same program starts without a GPU.
set(cuda_libraries CUDA::cudart_static)
