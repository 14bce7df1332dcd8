# install.cmake - program, library with headers, pkg-config file, man page, example.
set(DQ_DATA_FOLDER ${CMAKE_INSTALL_FULL_DATADIR}/diffquant)
set_source_files_properties(${CMAKE_SOURCE_DIR}/reports/cli/session.c
  TARGET_DIRECTORY dq_reports PROPERTIES COMPILE_DEFINITIONS
  "DQ_SOURCE=\"${CMAKE_SOURCE_DIR}\";DQ_DATA=\"${DQ_DATA_FOLDER}\"")
install(TARGETS diffquant RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS dq_kernels dq_analysis dq_quant dq_reports
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
foreach(name kernels analysis quant reports)
  file(GLOB headers ${CMAKE_SOURCE_DIR}/${name}/*.h)
  install(FILES ${headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/diffquant/${name})
endforeach()
install(FILES ${CMAKE_SOURCE_DIR}/tests/pair/heldout.txt
  ${CMAKE_SOURCE_DIR}/tests/pair/retrieval.jsonl DESTINATION ${DQ_DATA_FOLDER})
configure_file(${CMAKE_SOURCE_DIR}/reports/diffquant.pc.in diffquant.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/diffquant.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES ${CMAKE_SOURCE_DIR}/reports/diffquant.1
  DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
