# What `cmake --install` puts down: libsluice.a, the public headers, a CMake package, a pkg-config
# file. The top-level file adds the command.
include_guard(GLOBAL)
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# The folders of src/ as one archive, so that a program links one library.
set(folders sluice_base sluice_format sluice_kernels sluice_backends sluice_ffn sluice_file)
list(TRANSFORM folders REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>" OUTPUT_VARIABLE objects)
add_library(sluice_all STATIC ${objects}) # `sluice` is the command
add_library(sluice::sluice ALIAS sluice_all)
set_target_properties(sluice_all PROPERTIES OUTPUT_NAME sluice EXPORT_NAME sluice LINKER_LANGUAGE CXX)
target_compile_features(sluice_all INTERFACE cxx_std_23)
target_include_directories(
  sluice_all INTERFACE "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"
                   "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
target_link_libraries(sluice_all PRIVATE hwy::hwy XNNPACK::XNNPACK pthreadpool::pthreadpool
                                         Threads::Threads)

install(TARGETS sluice_all EXPORT sluiceTargets ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/sluice"
        DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        FILES_MATCHING PATTERN "*.h")

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/sluice")
install(EXPORT sluiceTargets NAMESPACE sluice:: DESTINATION "${package_dir}")
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/sluiceConfig.cmake.in"
                              "${PROJECT_BINARY_DIR}/sluiceConfig.cmake"
                              INSTALL_DESTINATION "${package_dir}")
write_basic_package_version_file("${PROJECT_BINARY_DIR}/sluiceConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/sluiceConfig.cmake"
              "${PROJECT_BINARY_DIR}/sluiceConfigVersion.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/SluiceDependencies.cmake"
        DESTINATION "${package_dir}")

# The file finds its prefix from where it lies, so an installed tree can be moved.
file(RELATIVE_PATH SLUICE_PC_TO_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
configure_file("${PROJECT_SOURCE_DIR}/cmake/sluice.pc.in" "${PROJECT_BINARY_DIR}/sluice.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/sluice.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
