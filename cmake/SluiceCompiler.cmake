# How every file of this tree is compiled, in one place.
include_guard(GLOBAL)

if(PROJECT_IS_TOP_LEVEL)
  if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, Debug or RelWithDebInfo" FORCE)
  endif()
  set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
    find_program(SLUICE_CCACHE ccache)
    mark_as_advanced(SLUICE_CCACHE)
    if(SLUICE_CCACHE)
      set(CMAKE_CXX_COMPILER_LAUNCHER "${SLUICE_CCACHE}")
    endif()
  endif()
endif()

set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

# -O2 for all: the numerics contract is tested with what ships. No -march, ever: Highway's functions
# carry their instruction set as an attribute, so nothing of it leaks into other objects.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O2 -g")
set(CMAKE_CXX_FLAGS_DEBUG "-Og -g -D_GLIBCXX_ASSERTIONS")

# Contraction would let the compiler fuse a multiply with an add on one target and not on another.
add_compile_options(-ffp-contract=off)

add_compile_options(
  -Wall
  -Wextra
  -Wshadow
  -Wvla
  -Wundef
  -Wnon-virtual-dtor
  -Woverloaded-virtual
  -Wextra-semi
  -Wunused
  -Wno-psabi # notes about vectors passed by value, which never cross this library's boundary
)
if(SLUICE_WERROR)
  add_compile_options(-Werror)
endif()

# Sanitized code is not what ships, and -O1 compiles in half the time.
if(SLUICE_SANITIZE)
  add_compile_options(
    -O1 -g1 -fsanitize=${SLUICE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
    -D_GLIBCXX_ASSERTIONS
    -Wno-maybe-uninitialized) # false in std::regex once GCC's sanitizers have changed the code
  add_link_options(-fsanitize=${SLUICE_SANITIZE})
endif()
