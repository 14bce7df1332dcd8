# isa.cmake - files named *_isa.c hold one source for all vector widths. Each is
# compiled three times with another DQ_ISA; the choice is made at run time.
file(GLOB DQ_ISA_SOURCES CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/cpu/*_isa.c)
set(DQ_ISA_OBJECTS)
set(DQ_ISA_FLAGS_plain "")
set(DQ_ISA_FLAGS_avx2 -mavx2 -mfma -mf16c)
set(DQ_ISA_FLAGS_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c
    -mprefer-vector-width=512)
if(DQ_ISA_SOURCES)
  foreach(isa plain avx2 avx512)
    add_library(dq_isa_${isa} OBJECT ${DQ_ISA_SOURCES})
    target_link_libraries(dq_isa_${isa} PRIVATE dq_flags)
    target_compile_definitions(dq_isa_${isa} PRIVATE DQ_ISA=${isa} DQ_ISA_${isa}=1)
    target_compile_options(dq_isa_${isa} PRIVATE -O3 ${DQ_ISA_FLAGS_${isa}} -Wno-psabi)
    list(APPEND DQ_ISA_OBJECTS $<TARGET_OBJECTS:dq_isa_${isa}>)
  endforeach()
endif()
