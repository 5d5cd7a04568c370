#include "src/base/atomic_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <utility>

#include "tests/support/temp_dir.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class AtomicFileTest : public testing::Test {
 protected:
  test::TempDir dir_;
  std::string path_ = dir_.File("out");
};

TEST_F(AtomicFileTest, AppendsAndFillsInEarlierPlaces) {
  auto file = AtomicFile::Create(path_);
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_TRUE(file->Write("......"));
  ASSERT_TRUE(file->Write("body"));
  EXPECT_EQ(file->written(), 10u);
  ASSERT_TRUE(file->WriteAt(0, std::as_bytes(std::span(std::string_view("header")))));
  EXPECT_EQ(file->written(), 10u) << "WriteAt does not move the end";
  ASSERT_TRUE(file->Write(" tail"));
  EXPECT_FALSE(std::filesystem::exists(path_));
  ASSERT_TRUE(file->Commit());
  EXPECT_EQ(test::ReadBytes(path_), "headerbody tail");
  EXPECT_THAT(dir_.List(), ElementsAre("out"));
}

TEST_F(AtomicFileTest, EmptyFile) {
  ASSERT_TRUE(WriteFileAtomically(path_, ""));
  EXPECT_EQ(test::ReadBytes(path_), "");
}

TEST_F(AtomicFileTest, MovedFilesCommitOnce) {
  auto file = AtomicFile::Create(path_);
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_TRUE(file->Write("a"));
  {
    AtomicFile moved = *std::move(file);
    ASSERT_TRUE(moved.Write("b"));
    ASSERT_TRUE(moved.Commit());
  }
  EXPECT_EQ(test::ReadBytes(path_), "ab");
  EXPECT_THAT(dir_.List(), ElementsAre("out"));
}

// Two writers of one path: the last to commit wins, and neither sees the other's bytes.
TEST_F(AtomicFileTest, TwoWritersDoNotMix) {
  auto first = AtomicFile::Create(path_);
  auto second = AtomicFile::Create(path_);
  ASSERT_TRUE(first && second);
  ASSERT_TRUE(first->Write("first, the longer"));
  ASSERT_TRUE(second->Write("second"));
  ASSERT_TRUE(second->Commit());
  EXPECT_EQ(test::ReadBytes(path_), "second");
  ASSERT_TRUE(first->Commit());
  EXPECT_EQ(test::ReadBytes(path_), "first, the longer");
}

TEST_F(AtomicFileTest, ErrorsNameThePathAndTheReason) {
  const std::string lost = dir_.File("no/such/folder/out");
  for (const Status& status :
       {WriteFileAtomically(lost, "x"), WriteFileAtomically(dir_.path(), "x")}) {
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message, HasSubstr(dir_.path()));
    EXPECT_THAT(status.error().message, Not(HasSubstr("\n")));
  }
  EXPECT_THAT(WriteFileAtomically(lost, "x").error().message,
              HasSubstr("No such file or directory"));
  EXPECT_TRUE(dir_.List().empty());
}

// What is at the path when the file is complete may not be what was there when it was begun.
TEST_F(AtomicFileTest, ARenameThatFailsLeavesNothingBehind) {
  auto file = AtomicFile::Create(path_);
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_TRUE(file->Write("x"));
  std::filesystem::create_directories(path_ + "/full");
  {
    AtomicFile doomed = *std::move(file);
    const Status status = doomed.Commit();
    ASSERT_FALSE(status);
    EXPECT_THAT(status.error().message, AllOf(HasSubstr(path_), HasSubstr("rename")));
  }
  EXPECT_THAT(dir_.List(), ElementsAre("out"));
}

// A disk that fills up, as a limit on the size of files: the old file stays, the new one goes.
TEST_F(AtomicFileTest, AWriteThatFailsLeavesTheOldFile) {
  test::WriteBytes(path_, "old");
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);  // so that write() fails with EFBIG
    const rlimit limit = {1000, 1000};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(2);
    const Status status = WriteFileAtomically(path_, std::string(5000, 'x'));
    const bool named = !status && status.error().message.starts_with(path_ + ": cannot write: ");
    _exit(named && status.error().code == ErrorCode::kIo ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(test::ReadBytes(path_), "old");
  EXPECT_THAT(dir_.List(), ElementsAre("out"));
}

}  // namespace
}  // namespace sluice
