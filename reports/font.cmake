# font.cmake - the typeface of the pictures, built into the program: DejaVu Sans
# from Debian's fonts-dejavu-core (free to embed). reports/draw/font_data.c takes
# the two files in with the assembler.
find_path(DQ_FONT_FOLDER DejaVuSans.ttf
  PATHS /usr/share/fonts/truetype/dejavu /usr/share/fonts/dejavu-sans-fonts
        /usr/share/fonts/TTF /usr/share/fonts/dejavu
  NO_DEFAULT_PATH REQUIRED
  DOC "Folder of DejaVuSans.ttf and DejaVuSans-Bold.ttf")
set_source_files_properties(${CMAKE_SOURCE_DIR}/reports/draw/font_data.c PROPERTIES
  COMPILE_DEFINITIONS DQ_FONT_FOLDER="${DQ_FONT_FOLDER}"
  OBJECT_DEPENDS "${DQ_FONT_FOLDER}/DejaVuSans.ttf;${DQ_FONT_FOLDER}/DejaVuSans-Bold.ttf")
