#include "src/base/temporary_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "src/base/atomic_file.h"
#include "tests/support/temp_dir.h"

namespace sluice {
namespace {

using testing::HasSubstr;

class TemporaryFileTest : public testing::Test {
 protected:
  test::TempDir dir_;
  std::string path_ = dir_.File("out");
};

TEST_F(TemporaryFileTest, IsThereUntilItIsDestroyed) {
  {
    auto file = TemporaryFile::Beside(path_);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_TRUE(std::filesystem::exists(file->name()));
    EXPECT_FALSE(std::filesystem::exists(path_));
    TemporaryFile moved = *std::move(file);
    EXPECT_EQ(dir_.List().size(), 1u);
  }
  EXPECT_EQ(dir_.List().size(), 0u);
}

TEST_F(TemporaryFileTest, RenameReplacesAndHonoursTheUmask) {
  test::WriteBytes(path_, "old");
  const mode_t mask = umask(027);
  auto file = TemporaryFile::Beside(path_);
  umask(mask);
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ(write(file->fd(), "new", 3), 3);
  ASSERT_TRUE(file->Rename());
  EXPECT_EQ(test::ReadBytes(path_), "new");
  struct stat st = {};
  ASSERT_EQ(stat(path_.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0640u);
  EXPECT_EQ(dir_.List().size(), 1u);
}

TEST_F(TemporaryFileTest, WhatIsNoRegularFileIsNeverReplaced) {
  for (const std::string& path : {dir_.path(), std::string("/dev/null")}) {
    const auto file = TemporaryFile::Beside(path);
    ASSERT_FALSE(file) << path;
    EXPECT_THAT(file.error().message, HasSubstr(path + ": is "));
  }
  const auto nameless = TemporaryFile::Beside("");
  ASSERT_FALSE(nameless);
  EXPECT_THAT(nameless.error().message, HasSubstr("name is empty"));
  const auto lost = TemporaryFile::Beside(dir_.File("no/such/out"));
  ASSERT_FALSE(lost);
  EXPECT_THAT(lost.error().message, HasSubstr("No such file or directory"));
}

TEST_F(TemporaryFileTest, AnAtomicFileThatIsNotCommittedLeavesNothing) {
  test::WriteBytes(path_, "old");
  {
    auto file = AtomicFile::Create(path_);
    ASSERT_TRUE(file) << file.error().message;
    ASSERT_TRUE(file->Write("half"));
  }
  EXPECT_EQ(test::ReadBytes(path_), "old");
  EXPECT_EQ(dir_.List().size(), 1u);
  ASSERT_TRUE(WriteFileAtomically(path_, "whole"));
  EXPECT_EQ(test::ReadBytes(path_), "whole");
  EXPECT_EQ(dir_.List().size(), 1u);
}

// In a process of its own, as a signal would find it: no destructor runs after the handler.
TEST_F(TemporaryFileTest, ASignalHandlerRemovesAllOfThem) {
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGTERM, [](int) {
      RemoveTemporaryFiles();
      _exit(0);
    });
    std::vector<TemporaryFile> files;
    for (int i = 0; i < 3; ++i) files.push_back(*TemporaryFile::Beside(path_));
    if (dir_.List().size() != 3 || !files[1].Rename()) _exit(1);
    raise(SIGTERM);
    _exit(2);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(dir_.List().size(), 1u);  // the one that was renamed
  EXPECT_TRUE(std::filesystem::exists(path_));
}

// Slots are given back: more files in a row than there are slots.
TEST_F(TemporaryFileTest, ManyInARow) {
  for (int i = 0; i < 100; ++i) {
    auto file = TemporaryFile::Beside(path_);
    ASSERT_TRUE(file) << file.error().message;
    if (i % 2 == 0) {
      ASSERT_TRUE(file->Rename());
    }
  }
  const auto file = TemporaryFile::Beside(path_);
  ASSERT_TRUE(file);
  const pid_t child = fork();
  if (child == 0) {
    RemoveTemporaryFiles();
    _exit(std::filesystem::exists(file->name()) ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace sluice
