# The CUDA backend, where nvcc is; else kernels/cuda/cuda_none.c stands in.
# dq_cuda(target) adds it to the library of kernels.
set(DQ_CUDA AUTO CACHE STRING "Build the CUDA backend: AUTO (where nvcc is), ON, OFF")
set(DQ_CUDA_FOUND OFF)
if(NOT DQ_CUDA STREQUAL "OFF")
  find_program(DQ_NVCC nvcc PATHS ENV CUDA_PATH ENV CUDA_HOME /usr/local/cuda /opt/cuda
    PATH_SUFFIXES bin)
  find_program(DQ_NVCC_HOST NAMES ${CMAKE_CUDA_HOST_COMPILER} g++ c++)
  if(DQ_NVCC AND DQ_NVCC_HOST)
    set(DQ_CUDA_FOUND ON)
  elseif(DQ_CUDA STREQUAL "ON")
    message(FATAL_ERROR "DQ_CUDA is ON, but nvcc or a C++ compiler for it was not found")
  else()
    message(STATUS "No nvcc and g++: diffquant is built for the CPU alone")
  endif()
endif()

if(DQ_CUDA_FOUND)
  set(CMAKE_CUDA_COMPILER ${DQ_NVCC})
  set(CMAKE_CUDA_ARCHITECTURES OFF)
  set(CMAKE_CUDA_STANDARD 17)
  enable_language(CUDA)
  set(CMAKE_CUDA_LINKER_PREFERENCE 0)            # programs stay C programs
  set(CMAKE_CUDA_LINKER_PREFERENCE_PROPAGATES 0)
  find_package(CUDAToolkit REQUIRED)
  # The installed program and programs linked with the library find the toolkit's.
  set(CMAKE_INSTALL_RPATH_USE_LINK_PATH TRUE)
  set(DQ_CUDA_LIBS " -L${CUDAToolkit_LIBRARY_DIR} -lcudart -ldl -lstdc++")

  # A simulator of a GPU, for tests (tests/cuda/cuda.cmake): it reads PTX, as it stands.
  set(beside ${CMAKE_SOURCE_DIR}/../shared/cusim)
  if(NOT EXISTS ${beside}/Makefile)
    set(beside "")
  endif()
  set(DQ_CUSIM "${beside}" CACHE PATH "Folder of a simulator of a GPU, or empty")

  # Machine code for those of these that nvcc knows; PTX of compute_80, which drivers of all
  # later GPUs translate. Compressed, it is an eighth of 100 MB.
  set(gpus 80 86 89 90 100 120)
  set(size "")
  if(CUDAToolkit_VERSION VERSION_GREATER_EQUAL 12.8)
    set(size --compress-mode=size)
  endif()
  if(DQ_CUSIM)
    set(gpus ptx)
    set(size -no-compress)
  endif()
  set(DQ_CUDA_GPUS ${gpus} CACHE STRING "GPUs to make machine code for, sm_NN; ptx: none")
  execute_process(COMMAND ${DQ_NVCC} --list-gpu-code OUTPUT_VARIABLE known)
  set(codes -gencode=arch=compute_80,code=compute_80)
  foreach(gpu ${DQ_CUDA_GPUS})
    if(known MATCHES "sm_${gpu}[^0-9]")
      list(APPEND codes -gencode=arch=compute_80,code=sm_${gpu})
    endif()
  endforeach()

  file(GLOB kernels CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cuda/cuda_*.cu)
  file(GLOB hosts CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cuda/cuda_*.c)
  list(REMOVE_ITEM hosts ${CMAKE_SOURCE_DIR}/kernels/cuda/cuda_none.c)
  # How kernels are compiled, those of tests too.
  function(dq_cuda_options target)
    target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR})
    # Products are fused where the code says so and nowhere else: what the PTX says, by which
    # kernels are tested, is then what every GPU computes.
    target_compile_options(${target} PRIVATE ${codes} ${size} -fmad=false -lineinfo
      -cudart=shared
      -Xcompiler=-Wall,-Wextra,-Werror -Xptxas=-warn-spills,-warn-lmem-usage)
    if(DQ_SANITIZE)
      target_compile_options(${target} PRIVATE -Xcompiler=-fsanitize=address,-fsanitize=undefined
        -Xcompiler=-fno-sanitize-recover=undefined)
    endif()
  endfunction()
  add_library(dq_cuda OBJECT ${kernels})
  dq_cuda_options(dq_cuda)
endif()

function(dq_cuda target)
  if(DQ_CUDA_FOUND)
    target_sources(${target} PRIVATE ${hosts} $<TARGET_OBJECTS:dq_cuda>)
    target_link_libraries(${target} PUBLIC CUDA::cudart ${CMAKE_DL_LIBS})
    target_link_options(${target} PUBLIC -Wl,--enable-new-dtags)  # LD_LIBRARY_PATH may replace it
  else()
    target_sources(${target} PRIVATE ${CMAKE_SOURCE_DIR}/kernels/cuda/cuda_none.c)
  endif()
endfunction()
