# Tests of the GPU: on one, where there is one (else they say SKIP), and in a simulator of one.
if(NOT DQ_CUDA_FOUND)
  add_test(NAME cuda COMMAND ${CMAKE_COMMAND} -E echo "SKIP: built without nvcc")
  set_tests_properties(cuda PROPERTIES SKIP_REGULAR_EXPRESSION "SKIP" LABELS cuda)
  return()
endif()

# What is not one operation alone: the simulator looks at its addresses, not for races.
set(whole test_cuda_models test_cuda_cli)
# What a test needs beside the floors below quant.
set(needs_test_cuda_quantize dq_quant)
set(needs_test_cuda_cli dq_ref_reports dq_reports)

# The simulator, DQ_CUSIM: a folder with a libcudart and a libcublas that run kernels on the CPU,
# or with a Makefile that builds them below build/.
set(cusim "")
if(DQ_CUSIM)
  set(cusim ${DQ_CUSIM})
  if(EXISTS ${DQ_CUSIM}/Makefile)
    file(COPY ${DQ_CUSIM}/ DESTINATION ${CMAKE_BINARY_DIR}/cusim NO_SOURCE_PERMISSIONS
      PATTERN build EXCLUDE)
    file(GLOB scripts ${CMAKE_BINARY_DIR}/cusim/*.sh)
    file(CHMOD ${scripts} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
    add_custom_target(cusim ALL COMMAND make -s -C ${CMAKE_BINARY_DIR}/cusim
      COMMENT "Building the simulator of a GPU" VERBATIM)
    set(cusim ${CMAKE_BINARY_DIR}/cusim/build)
  endif()
endif()
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/cuda/test_*.c
  ${CMAKE_SOURCE_DIR}/tests/cuda/test_*.cu)
file(GLOB helpers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/cuda/ref_*.c)
add_library(dq_ref_cuda OBJECT ${helpers})
target_link_libraries(dq_ref_cuda PUBLIC dq_ref_analysis dq_ref_kernels dq_check dq_analysis)
foreach(source ${sources})
  get_filename_component(test ${source} NAME_WE)
  if(source MATCHES "[.]cu$")  # its kernels as those of the backend, the program a C program
    add_library(${test}_kernels OBJECT ${source})
    dq_cuda_options(${test}_kernels)
    set(source $<TARGET_OBJECTS:${test}_kernels>)
  endif()
  add_executable(${test} ${source})
  set_target_properties(${test} PROPERTIES LINKER_LANGUAGE C)
  target_link_libraries(${test} PRIVATE dq_ref_cuda dq_ref_analysis dq_ref_kernels dq_check
    ${needs_${test}} dq_analysis)
  # Leaks are looked for in simulation: a driver has its own, and a test that is skipped goes
  # home at once.
  add_test(NAME cuda.${test} COMMAND ${test})
  set_tests_properties(cuda.${test} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600 LABELS cuda
    ENVIRONMENT "ASAN_OPTIONS=detect_leaks=0:protect_shadow_gap=0")
  if(cusim)
    add_test(NAME cusim.${test} COMMAND ${test})
    set_tests_properties(cusim.${test} PROPERTIES TIMEOUT 1200 LABELS cusim
      ENVIRONMENT "LD_LIBRARY_PATH=${cusim};ASAN_OPTIONS=detect_leaks=1")
    if(DQ_SANITIZE)  # approximate functions off by 2 ulp
      set_property(TEST cusim.${test} APPEND PROPERTY ENVIRONMENT CUSIM_FUZZ=1)
    endif()
    if(test IN_LIST whole)
      set_property(TEST cusim.${test} APPEND PROPERTY ENVIRONMENT CUSIM_CHECK=bounds)
    endif()
  endif()
endforeach()
add_library(lose SHARED ${CMAKE_SOURCE_DIR}/tests/cuda/lose.c)   # a GPU that fails
target_link_libraries(lose PRIVATE CUDA::cudart ${CMAKE_DL_LIBS})
add_dependencies(test_cuda_cli diffquant lose)
target_compile_definitions(test_cuda_cli PRIVATE DQ_LOSE="$<TARGET_FILE:lose>")
if(NOT DQ_SANITIZE)
  add_test(NAME cuda.budget COMMAND bash ${CMAKE_SOURCE_DIR}/tests/cuda/budget.sh ${DQ_NVCC})
  set_tests_properties(cuda.budget PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 1800 LABELS cuda)
endif()
if(cusim)
  add_test(NAME cusim.card_too_old COMMAND diffquant analyze ${CMAKE_SOURCE_DIR}/tests/pair/diff
    --device cuda --max-tokens 64)
  set_tests_properties(cusim.card_too_old PROPERTIES LABELS cusim
    ENVIRONMENT "LD_LIBRARY_PATH=${cusim};CUSIM_ARCH=75"
    PASS_REGULAR_EXPRESSION "has compute capability 7.5, the kernels need 8.0; use --device cpu")
endif()
include(${CMAKE_SOURCE_DIR}/tests/bench/cuda/bench.cmake)
