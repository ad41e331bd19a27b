#include "cli/progress_bar.h"

#include <gtest/gtest.h>

#include <sstream>

namespace kaon {
namespace {

/// What a terminal shows on its line, after every \r and "erase to the end of the line".
std::string shown(const std::string& written) {
  const size_t start = written.rfind('\r');
  std::string line = start == std::string::npos ? written : written.substr(start + 1);
  if (const size_t erase = line.find("\x1b[K"); erase != std::string::npos) line.erase(erase, 3);
  return line;
}

class ProgressBarTest : public testing::Test {
 protected:
  ProgressBar bar(int width) {
    return ProgressBar(out_, width, [this] { return now_; });
  }
  std::string shown_now() const { return shown(out_.str()); }

  std::ostringstream out_;
  double now_ = 100;
};

TEST_F(ProgressBarTest, DrawsTaskBarStepsNoteAndTimeLeft) {
  ProgressBar progress = bar(100);
  progress.begin("calibrate", 200);
  EXPECT_EQ(shown_now(), "calibrate [" + std::string(40, '.') + "] 0/200");
  now_ += 10;
  progress.at(50, "top1 0.9");
  EXPECT_EQ(shown_now(), "calibrate [" + std::string(10, '#') + std::string(30, '.') + "] 50/200  top1 0.9  30 s left");
  now_ += 30;
  progress.at(200);
  EXPECT_EQ(shown_now(), "calibrate [" + std::string(40, '#') + "] 200/200");
}

TEST_F(ProgressBarTest, NeverWiderThanTheTerminal) {
  for (int width = 1; width < 120; ++width) {
    out_.str("");
    ProgressBar progress = bar(width);
    progress.begin("a task with a long name", 1000000);
    now_ += 1000;
    progress.at(999, "loss 1.234567");
    EXPECT_LT(std::ssize(shown_now()), width);
  }
}

TEST_F(ProgressBarTest, NarrowTerminalLosesTheBarFirst) {
  ProgressBar progress = bar(30);
  progress.begin("evaluate", 1000);
  now_ += 1;
  progress.at(10, "top1 0.5");
  EXPECT_EQ(shown_now(), "evaluate 10/1000  top1 0.5  1");
}

TEST_F(ProgressBarTest, RedrawsTenTimesASecond) {
  ProgressBar progress = bar(80);
  progress.begin("evaluate", 1000);
  const size_t before = out_.str().size();
  now_ += 0.05;
  progress.at(1);
  EXPECT_EQ(out_.str().size(), before);
  now_ += 0.06;
  progress.at(2);
  EXPECT_NE(shown_now().find(" 2/1000"), std::string::npos);
}

TEST_F(ProgressBarTest, EndLeavesALineOnlyForLongTasks) {
  ProgressBar progress = bar(80);
  progress.begin("short", 2);
  now_ += 5;
  progress.at(2);
  progress.end();
  EXPECT_EQ(shown_now(), "");
  EXPECT_EQ(out_.str().find('\n'), std::string::npos);
  progress.begin("long", 2);
  now_ += 65;
  progress.at(2);
  progress.end();
  EXPECT_EQ(shown_now(), "long: 2 in 1 min 05 s\n");
}

TEST_F(ProgressBarTest, WithoutATerminalALineEveryFewSeconds) {
  ProgressBar progress = bar(0);
  progress.begin("calibrate", 100);
  for (int i = 1; i <= 100; ++i) {
    now_ += 0.125;
    progress.at(i, "top1 0.9");
  }
  progress.end();
  EXPECT_EQ(out_.str(),
            "calibrate 40/100  top1 0.9  8 s left\n"
            "calibrate 80/100  top1 0.9  3 s left\n"
            "calibrate: 100 in 13 s\n");
}

TEST_F(ProgressBarTest, WithoutATerminalAShortTaskIsSilent) {
  ProgressBar progress = bar(0);
  progress.begin("short", 2);
  progress.at(1);
  progress.end();
  EXPECT_EQ(out_.str(), "");
  progress.begin("long", 3);
  now_ += 7;
  progress.at(3);
  progress.end();
  EXPECT_EQ(out_.str(), "long: 3 in 7 s\n");
}

TEST_F(ProgressBarTest, LineGoesAwayWhenTheTaskIsAbandoned) {
  {
    ProgressBar progress = bar(80);
    progress.begin("evaluate", 10);
    EXPECT_NE(shown_now(), "");
  }
  EXPECT_EQ(shown_now(), "");
}

TEST_F(ProgressBarTest, UnknownTotalHasNoBar) {
  ProgressBar progress = bar(80);
  progress.begin("read", 0);
  now_ += 1;
  progress.at(7);
  EXPECT_EQ(shown_now(), "read 7");
}

TEST(DurationTextTest, RoundsUpToWholeSeconds) {
  EXPECT_EQ(duration_text(0), "0 s");
  EXPECT_EQ(duration_text(0.2), "1 s");
  EXPECT_EQ(duration_text(59), "59 s");
  EXPECT_EQ(duration_text(59.5), "1 min 00 s");
  EXPECT_EQ(duration_text(185), "3 min 05 s");
  EXPECT_EQ(duration_text(3599.5), "1 h 00 min");
  EXPECT_EQ(duration_text(3725), "1 h 02 min");
}

}  // namespace
}  // namespace kaon
