# Turns a text file into a C++ source that defines it as a constant, at build time:
#   cmake -D INPUT=file -D OUTPUT=file.cc -D SYMBOL=kName -P embed.cmake
cmake_minimum_required(VERSION 3.25)
file(READ "${INPUT}" text)
if(text MATCHES "\\)sluice_text\"")
  message(FATAL_ERROR "${INPUT} holds the delimiter )sluice_text\"")
endif()
file(
  WRITE "${OUTPUT}"
  "// Made from ${INPUT}; do not edit.
namespace sluice {
extern const char ${SYMBOL}[];
const char ${SYMBOL}[] = R\"sluice_text(${text})sluice_text\";
}  // namespace sluice
")
