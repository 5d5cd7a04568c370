# A Debian package: `./platforms/run package`, by CPack. It is called sluice-ffn, since Debian has a package
# sluice, another program, which apt would take for a newer version of this one. It has what `cmake --install` puts down, the
# benchmark programs, man pages made from --help, and what Debian asks of every package.
include_guard(GLOBAL)
include(GNUInstallDirs)

# The benchmarks under names that say whose they are.
set(programs ffn_bench roofline_bench kernels_bench)
foreach(program IN LISTS programs)
  string(REPLACE "_" "-" installed "sluice-${program}")
  install(PROGRAMS "$<TARGET_FILE:${program}>" DESTINATION "${CMAKE_INSTALL_BINDIR}" RENAME "${installed}")
  # CMake strips only what it installs under its own name.
  install(CODE "
    if(CMAKE_INSTALL_DO_STRIP)
      execute_process(COMMAND \"${CMAKE_STRIP}\" --strip-unneeded
                              \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}/${installed}\"
                      COMMAND_ERROR_IS_FATAL ANY)
    endif()")
endforeach()
install(DIRECTORY "${PROJECT_SOURCE_DIR}/bench/shapes" DESTINATION "${CMAKE_INSTALL_DATADIR}/sluice")

# Man pages: the programs run, under the emulator in a cross build, so they are not part of `all`. Their
# maker is looked for when it is needed: a tree is often configured before it is installed.
set(man_dir "${PROJECT_BINARY_DIR}/man")
add_custom_target(
  man_pages
  COMMAND "${PROJECT_SOURCE_DIR}/platforms/package/man_pages.sh" "${man_dir}" "${PROJECT_VERSION}"
          "$<TARGET_FILE:sluice>" "$<TARGET_FILE_DIR:ffn_bench>" ${CMAKE_CROSSCOMPILING_EMULATOR}
  DEPENDS sluice ${programs}
  VERBATIM)
install(DIRECTORY "${man_dir}/" DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" COMPONENT package
        EXCLUDE_FROM_ALL)

# What only a Debian package has.
set(doc_dir "${CMAKE_INSTALL_DATADIR}/doc/sluice-ffn")
string(TIMESTAMP SLUICE_PACKAGE_DATE "%a, %d %b %Y %H:%M:%S +0000" UTC) # SOURCE_DATE_EPOCH, if set
set(SLUICE_MAINTAINER "The sluice maintainers <maintainers@sluice.invalid>")
configure_file("${PROJECT_SOURCE_DIR}/platforms/package/changelog.in"
               "${PROJECT_BINARY_DIR}/package/changelog" @ONLY)
file(ARCHIVE_CREATE OUTPUT "${PROJECT_BINARY_DIR}/package/changelog.gz"
     PATHS "${PROJECT_BINARY_DIR}/package/changelog" FORMAT raw COMPRESSION GZip COMPRESSION_LEVEL 9)
install(FILES "${PROJECT_BINARY_DIR}/package/changelog.gz"
              "${PROJECT_SOURCE_DIR}/platforms/package/copyright"
        DESTINATION "${doc_dir}" COMPONENT package EXCLUDE_FROM_ALL)

if(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^armv7")
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE armhf)
else()
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE amd64)
endif()
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME sluice-ffn)
set(CPACK_PACKAGE_DIRECTORY "${PROJECT_BINARY_DIR}/package")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS # whatever the umask is
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
# All components, as one package.
set(CPACK_COMPONENTS_ALL Unspecified package)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER "${SLUICE_MAINTAINER}")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONFLICTS sluice) # it has /usr/bin/sluice too
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libhwy-dev, libxnnpack-dev, libpthreadpool-dev")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "feed-forward blocks of language models in int8 and int4")
set(CPACK_PACKAGE_DESCRIPTION
    "sluice quantizes the feed-forward blocks of transformers, runs them with
the same bits on every CPU, and reports which matrix of which layer the
error comes from.
.
This package has the command, the library with its headers, and the
benchmarks. To link the library, install the suggested packages as well.")
include(CPack)
