# Cross build for 32-bit ARM with Debian's crossbuild-essential-armhf. Debian's armhf does not promise
# NEON; the kernels need it, and every Raspberry Pi from the 2 on has it with fused multiply-add.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR armv7l)
set(SLUICE_TRIPLET arm-linux-gnueabihf)
set(SLUICE_QEMU qemu-arm)
set(CMAKE_CXX_FLAGS_INIT "-mfpu=neon-vfpv4")
set(CMAKE_C_FLAGS_INIT "-mfpu=neon-vfpv4")
include("${CMAKE_CURRENT_LIST_DIR}/debian-cross.cmake")
