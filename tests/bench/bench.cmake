# bounds, what bench.py measures beside the program, and a smoke test of both: that they run, not
# how fast.
add_executable(bounds ${CMAKE_SOURCE_DIR}/tests/bench/bounds.c)
target_link_libraries(bounds PRIVATE dq_flags)
find_package(Python3 3.9 COMPONENTS Interpreter)
if(Python3_FOUND AND NOT DQ_SANITIZE)
  set(bench "${Python3_EXECUTABLE} -B ${CMAKE_SOURCE_DIR}/tests/bench/bench.py")
  set(tiny ${CMAKE_BINARY_DIR}/bench-tiny)
  add_test(NAME bench COMMAND sh -c "${bench} ${CMAKE_BINARY_DIR} --tiny --work ${tiny} -o \
${tiny}.json && ${bench} --note ${tiny}.json > ${tiny}.md")
  set_tests_properties(bench PROPERTIES TIMEOUT 600)
endif()
