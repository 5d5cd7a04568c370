#include "src/base/mapped_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <format>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "tests/support/temp_dir.h"

namespace sluice {
namespace {

using testing::HasSubstr;

std::string Text(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

class MappedFileTest : public testing::Test {
 protected:
  Error Refusal(const std::string& path) {
    const auto file = MappedFile::Open(path);
    if (file) {
      ADD_FAILURE() << path << " was opened";
      return {};
    }
    EXPECT_THAT(file.error().message, testing::StartsWith(path + ": "));
    return file.error();
  }

  test::TempDir dir_;
};

TEST_F(MappedFileTest, HoldsTheFilesBytes) {
  const std::string path = dir_.File("data");
  for (const size_t size : {1, 4095, 4096, 4097, 100000}) {
    std::string content(size, '\0');
    for (size_t i = 0; i < size; ++i) content[i] = static_cast<char>(i * 7);
    test::WriteBytes(path, content);
    const auto file = MappedFile::Open(path);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->path(), path);
    EXPECT_EQ(Text(*file), content);
  }
}

TEST_F(MappedFileTest, StaysWhenTheNameIsGone) {
  const std::string path = dir_.File("data");
  test::WriteBytes(path, "content");
  const auto file = MappedFile::Open(path);
  ASSERT_TRUE(file);
  std::filesystem::remove(path);
  EXPECT_EQ(Text(*file), "content");
}

TEST_F(MappedFileTest, MovesTakeTheMappingAlong) {
  test::WriteBytes(dir_.File("a"), "aaa");
  test::WriteBytes(dir_.File("b"), "b");
  MappedFile a = MappedFile::Open(dir_.File("a")).value();
  MappedFile b = MappedFile::Open(dir_.File("b")).value();
  const std::byte* data = a.bytes().data();
  MappedFile moved = std::move(a);
  EXPECT_EQ(moved.bytes().data(), data);
  EXPECT_TRUE(a.bytes().empty());  // NOLINT(bugprone-use-after-move)
  b = std::move(moved);
  EXPECT_EQ(b.bytes().data(), data);
  EXPECT_EQ(Text(b), "aaa");
  EXPECT_EQ(b.path(), dir_.File("a"));
}

TEST_F(MappedFileTest, RefusesWhatIsNoFileToMap) {
  EXPECT_EQ(Refusal(dir_.File("missing")).code, ErrorCode::kNotFound);
  EXPECT_THAT(Refusal(dir_.File("missing")).message, HasSubstr("No such file"));
  EXPECT_THAT(Refusal(dir_.path()).message, HasSubstr("is a directory"));
  EXPECT_THAT(Refusal("/dev/zero").message, HasSubstr("not a regular file"));
  test::WriteBytes(dir_.File("empty"), "");
  EXPECT_EQ(Refusal(dir_.File("empty")).code, ErrorCode::kCorrupt);
  test::WriteBytes(dir_.File("file"), "x");
  EXPECT_EQ(Refusal(dir_.File("file/below")).code, ErrorCode::kIo);
}

// A pipe that nobody writes to must not make the program wait.
TEST_F(MappedFileTest, RefusesAnEmptyName) {
  const auto file = MappedFile::Open("");
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().message, HasSubstr("name is empty"));
}

TEST_F(MappedFileTest, RefusesAPipeAtOnce) {
  const std::string path = dir_.File("pipe");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_THAT(Refusal(path).message, HasSubstr("not a regular file"));
}

// As a user who may not; root may read everything.
TEST_F(MappedFileTest, RefusesWhatItMayNotRead) {
  constexpr uid_t kNobody = 65534;
  const std::string path = dir_.File("secret");
  test::WriteBytes(path, "x");
  std::filesystem::permissions(path, std::filesystem::perms::none);
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && setuid(kNobody) != 0) _exit(77);
    const auto file = MappedFile::Open(path);
    const bool refused = !file && file.error().code == ErrorCode::kIo &&
                         file.error().message == path + ": cannot open: Permission denied";
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "this root cannot become another user";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// Only whole pages within the range go, and what is read again is the same.
TEST_F(MappedFileTest, ReleaseKeepsTheContent) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const std::string path = dir_.File("data");
  std::string content(8 * page, 'x');
  for (size_t i = 0; i < content.size(); ++i) content[i] = static_cast<char>(i / page);
  test::WriteBytes(path, content);
  const auto file = MappedFile::Open(path);
  ASSERT_TRUE(file);
  EXPECT_EQ(Text(*file), content);
  const auto bytes = file->bytes();
  file->Release(bytes);
  file->Release(bytes.subspan(1, 10));
  file->Release(bytes.subspan(page - 1, 2));
  file->Release(bytes.subspan(page + 1, 3 * page));
  file->Release(bytes.first(0));
  EXPECT_EQ(Text(*file), content);
}

// Bytes of the mapping at `address` that this process holds, if the system tells.
std::optional<size_t> Resident(const void* address) {
  std::ifstream smaps("/proc/self/smaps");
  const std::string begin = std::format("{:x}-", reinterpret_cast<uintptr_t>(address));
  bool found = false;
  for (std::string line; std::getline(smaps, line);) {
    if (line.starts_with(begin)) found = true;
    if (found && line.starts_with("Rss:")) return std::stoul(line.substr(4)) * 1024;
  }
  return std::nullopt;
}

// Whether anything of this process is resident, as far as the file says.
bool TellsWhatIsResident() {
  std::ifstream smaps("/proc/self/smaps");
  for (std::string line; std::getline(smaps, line);) {
    if (line.starts_with("Rss:") && std::stoul(line.substr(4)) != 0) return true;
  }
  return false;
}

TEST_F(MappedFileTest, ReleaseGivesMemoryBack) {
  constexpr size_t kSize = size_t{1} << 20;
  const std::string path = dir_.File("data");
  test::WriteBytes(path, std::string(kSize, 'x'));
  const auto file = MappedFile::Open(path);
  ASSERT_TRUE(file);
  EXPECT_EQ(Text(*file).size(), kSize);
  const auto before = Resident(file->bytes().data());
  if (!before) GTEST_SKIP() << "/proc/self/smaps does not show the mapping";
  if (!TellsWhatIsResident()) GTEST_SKIP() << "/proc/self/smaps has zeros only, as qemu's has";
  EXPECT_EQ(*before, kSize);
  file->Release(file->bytes().first(kSize / 2));
  EXPECT_EQ(Resident(file->bytes().data()), kSize / 2);
}

}  // namespace
}  // namespace sluice
