# What the library links to. Installed beside sluiceConfig.cmake, so that a program which links
# libsluice.a finds exactly what this build found.
#
#   hwy::hwy                    Highway
#   XNNPACK::XNNPACK            XNNPACK (Debian ships no CMake package for it)
#   pthreadpool::pthreadpool    pthreadpool (nor for this one)
#   Threads::Threads
include_guard(DIRECTORY)
include(CMakeFindDependencyMacro)

find_dependency(Threads)
find_dependency(hwy)

# Debian's libpthreadpool-dev cannot be installed for two architectures at once; its run-time library
# can. A cross build therefore links the versioned file, which is the same library.
foreach(spec IN ITEMS "XNNPACK|xnnpack.h|libXNNPACK.so.0.20241108"
                      "pthreadpool|pthreadpool.h|libpthreadpool.so.0")
  string(REPLACE "|" ";" spec "${spec}")
  list(GET spec 0 name)
  list(GET spec 1 header)
  list(GET spec 2 versioned)
  if(NOT TARGET ${name}::${name})
    find_library(${name}_LIBRARY NAMES ${name} ${versioned})
    find_path(${name}_INCLUDE_DIR NAMES ${header})
    mark_as_advanced(${name}_LIBRARY ${name}_INCLUDE_DIR)
    if(NOT ${name}_LIBRARY OR NOT ${name}_INCLUDE_DIR)
      message(FATAL_ERROR "sluice needs ${name}: lib${name} or ${header} was not found")
    endif()
    add_library(${name}::${name} UNKNOWN IMPORTED)
    set_target_properties(
      ${name}::${name} PROPERTIES IMPORTED_LOCATION "${${name}_LIBRARY}"
                                  INTERFACE_INCLUDE_DIRECTORIES "${${name}_INCLUDE_DIR}")
  endif()
endforeach()
set_property(TARGET XNNPACK::XNNPACK PROPERTY INTERFACE_LINK_LIBRARIES pthreadpool::pthreadpool)
