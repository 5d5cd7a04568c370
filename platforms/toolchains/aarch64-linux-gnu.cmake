# Cross build for 64-bit ARM with Debian's crossbuild-essential-arm64. Tests run under qemu;
# SLUICE_CPU names the CPU it plays (cortex-a53, cortex-a72, cortex-a76, neoverse-v1, max…).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(SLUICE_TRIPLET aarch64-linux-gnu)
set(SLUICE_QEMU qemu-aarch64)
include("${CMAKE_CURRENT_LIST_DIR}/debian-cross.cmake")
