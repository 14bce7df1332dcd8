# bench_cuda, and a smoke test: that it runs, not how fast. After tests/cuda/cuda.cmake, where
# DQ_CUDA_FOUND.
file(GLOB bench_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/bench/cuda/bench_*.c)
add_executable(bench_cuda ${bench_sources})
set_target_properties(bench_cuda PROPERTIES LINKER_LANGUAGE C)
target_link_libraries(bench_cuda PRIVATE dq_analysis)
add_test(NAME cuda.bench COMMAND bench_cuda --tiny)
set_tests_properties(cuda.bench PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 600 LABELS cuda)
if(cusim)
  add_test(NAME cusim.bench COMMAND bench_cuda --tiny)
  set_tests_properties(cusim.bench PROPERTIES TIMEOUT 1200 LABELS cusim
    ENVIRONMENT "LD_LIBRARY_PATH=${cusim}")
endif()
