// What /proc/cpuinfo of different machines comes to.
#include "src/base/cpu_name.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/support/temp_dir.h"

namespace sluice {
namespace {

class CpuNameIn : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& content) {
    const std::filesystem::path path = dir_.File(name);
    std::filesystem::create_directories(path.parent_path());
    test::WriteBytes(path.string(), content);
  }
  std::string Name() const { return CpuName(dir_.path()); }

  test::TempDir dir_;
};

TEST_F(CpuNameIn, X86) {
  Write("proc/cpuinfo",
        "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel\t\t: 68\n"
        "model name\t: AMD EPYC 9R45\nflags\t\t: fpu\n\nprocessor\t: 1\nmodel name\t: Other\n");
  EXPECT_EQ(Name(), "AMD EPYC 9R45");
}

TEST_F(CpuNameIn, RaspberryPi) {
  Write("proc/cpuinfo",
        "processor\t: 0\nCPU implementer\t: 0x41\nCPU part\t: 0xd0b\n\n"
        "processor\t: 1\nCPU implementer\t: 0x41\nCPU part\t: 0xd0b\n\nRevision\t: d04170\n");
  Write("proc/device-tree/model", std::string("Raspberry Pi 5 Model B Rev 1.0\0", 31));
  EXPECT_EQ(Name(), "Raspberry Pi 5 Model B Rev 1.0 (2x Cortex-A76)");
}

TEST_F(CpuNameIn, DifferentCoresAndNoBoard) {
  Write(
      "proc/cpuinfo",
      "CPU implementer\t: 0x41\nCPU part\t: 0xd05\n\nCPU implementer\t: 0x41\nCPU part\t: 0xd05\n\n"
      "CPU implementer\t: 0x61\nCPU part\t: 0x022\n\n");
  EXPECT_EQ(Name(), "2x Cortex-A55, 1x core 0x61/0x022");
}

TEST_F(CpuNameIn, NothingKnown) {
  EXPECT_EQ(Name(), "unknown CPU");
  Write("proc/cpuinfo", "model name\t:   \nodd line\n:\n");
  EXPECT_EQ(Name(), "unknown CPU");
}

TEST_F(CpuNameIn, IsOnePrintableLine) {
  Write("proc/cpuinfo", "model name\t:  A\x1b[31mB\tC \n");
  EXPECT_EQ(Name(), "A[31mBC");
}

TEST(CpuName, OfThisMachineIsNotEmpty) { EXPECT_NE(CpuName(), ""); }

}  // namespace
}  // namespace sluice
