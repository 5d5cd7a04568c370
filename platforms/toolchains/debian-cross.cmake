# The part common to Debian's cross compilers. Set before: SLUICE_TRIPLET, SLUICE_QEMU.
set(CMAKE_C_COMPILER ${SLUICE_TRIPLET}-gcc)
set(CMAKE_CXX_COMPILER ${SLUICE_TRIPLET}-g++)
set(CMAKE_LIBRARY_ARCHITECTURE ${SLUICE_TRIPLET})

# Debian installs a foreign architecture's libraries beside the native ones, under its own folder.
# /usr/lib itself would offer those of the machine that compiles.
set(CMAKE_IGNORE_PATH /usr/lib /lib /usr/lib/x86_64-linux-gnu)
set(ENV{PKG_CONFIG_LIBDIR} "/usr/lib/${SLUICE_TRIPLET}/pkgconfig:/usr/share/pkgconfig")

set(SLUICE_CPU "max" CACHE STRING "The CPU that qemu plays")
set(CMAKE_CROSSCOMPILING_EMULATOR "${SLUICE_QEMU};-L;/;-cpu;${SLUICE_CPU}")
