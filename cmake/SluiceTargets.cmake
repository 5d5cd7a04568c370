# sluice_library and sluice_test: how a folder declares its target and a test its program.
include_guard(GLOBAL)

# sluice_library(NAME SOURCES file… [DEPS target…] [PRIVATE_DEPS target…])
#
# The static library of one folder. Files are included by their path from the top of the tree
# ("src/base/x.h"), public headers as "sluice/x.h".
function(sluice_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;DEPS;PRIVATE_DEPS")
  add_library(${name} STATIC ${arg_SOURCES})
  target_include_directories(
    ${name} PUBLIC "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>"
                   "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>")
  target_link_libraries(${name} PUBLIC ${arg_DEPS} PRIVATE ${arg_PRIVATE_DEPS})
endfunction()

# sluice_test(NAME SOURCES file… [LIBS target…] [LABELS label…] [TIMEOUT seconds] [COST seconds])
#
# A GoogleTest program, each of whose tests is a ctest test. They are listed when ctest starts, not
# when the program is linked, so that a cross build needs its emulator only to test, which takes longer.
# Tests of the highest COST start first: about the seconds of the longest under an emulator.
function(sluice_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "TIMEOUT;COST" "SOURCES;LIBS;LABELS")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  if(NOT arg_COST)
    set(arg_COST 0)
  endif()
  if(CMAKE_CROSSCOMPILING)
    math(EXPR arg_TIMEOUT "4 * ${arg_TIMEOUT}")
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LIBS} sluice_test_support GTest::gmock GTest::gtest_main)
  target_compile_definitions(
    ${name} PRIVATE SLUICE_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                    SLUICE_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data"
                    SLUICE_TEST_EMULATED=$<BOOL:${CMAKE_CROSSCOMPILING}>)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests")
  add_dependencies(test_programs ${name})
  gtest_discover_tests(
    ${name}
    TEST_PREFIX "${name}."
    DISCOVERY_MODE PRE_TEST
    DISCOVERY_TIMEOUT 120
    PROPERTIES TIMEOUT ${arg_TIMEOUT} COST ${arg_COST} LABELS "${arg_LABELS}")
endfunction()
