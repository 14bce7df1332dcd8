# Tests of the GPU: on one, where there is one (else they say SKIP), and in a simulator of one.
set(DQ_CUSIM "" CACHE PATH "Folder with a libcudart and libcublas that simulate a GPU, or empty")
file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/cuda/test_*.c)
file(GLOB helpers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/cuda/ref_*.c)
add_library(dq_ref_cuda OBJECT ${helpers})
target_link_libraries(dq_ref_cuda PUBLIC dq_ref_analysis dq_ref_kernels dq_check dq_analysis)
foreach(source ${sources})
  get_filename_component(test ${source} NAME_WE)
  add_executable(${test} ${source})
  target_link_libraries(${test} PRIVATE dq_ref_cuda dq_ref_analysis dq_ref_kernels dq_check
    dq_analysis)
  add_test(NAME cuda.${test} COMMAND ${test})
  set_tests_properties(cuda.${test} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600 LABELS cuda
    ENVIRONMENT "ASAN_OPTIONS=detect_leaks=1:protect_shadow_gap=0")
  if(DQ_CUSIM AND DQ_CUDA_FOUND)
    add_test(NAME cusim.${test} COMMAND ${test})
    set_tests_properties(cusim.${test} PROPERTIES TIMEOUT 1200 LABELS "cusim"
      ENVIRONMENT "LD_LIBRARY_PATH=${DQ_CUSIM};ASAN_OPTIONS=detect_leaks=1")
  endif()
endforeach()
