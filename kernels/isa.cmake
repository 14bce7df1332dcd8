# isa.cmake - files named *_isa.c hold one source for all vector widths. Each is
# compiled three times with another DQ_ISA; the choice is made at run time.
set(DQ_ISA_FLAGS_plain "")
set(DQ_ISA_FLAGS_avx2 -mavx2 -mfma -mf16c -mbmi)
set(DQ_ISA_FLAGS_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c -mbmi
    -mprefer-vector-width=512)

# dq_isa(target folder): the folder's files, for every instruction set, into a library
function(dq_isa target folder)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/${folder}/*_isa.c)
  foreach(isa plain avx2 avx512)
    set(objects ${target}_${isa})
    add_library(${objects} OBJECT ${sources})
    target_link_libraries(${objects} PRIVATE dq_flags)
    target_compile_definitions(${objects} PRIVATE DQ_ISA=${isa} DQ_ISA_${isa}=1)
    target_compile_options(${objects} PRIVATE -O3 ${DQ_ISA_FLAGS_${isa}} -Wno-psabi)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${objects}>)
  endforeach()
endfunction()
