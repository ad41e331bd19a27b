#include "cli/progress_bar.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>

namespace kaon {

namespace {

constexpr double kRedrawSeconds = 0.1;
constexpr double kWorthALine = 5;  // seconds
constexpr double kLineEvery = 5;   // seconds, where there is no terminal
constexpr int kMostBar = 40;
constexpr int kLeastBar = 8;

}  // namespace

ProgressBar::ProgressBar(std::ostream& out, int width, Clock clock)
    : out_(out), width_(width), clock_(std::move(clock)) {}

ProgressBar::~ProgressBar() { hide(); }

void ProgressBar::begin(const std::string& task, int64_t total) {
  hide();
  task_ = task;
  total_ = total;
  done_ = 0;
  start_ = drawn_at_ = clock_();
  if (width_ > 0) draw("");
}

void ProgressBar::at(int64_t done, const std::string& note) {
  done_ = done;
  const double since = clock_() - drawn_at_;
  if (width_ <= 0 ? since < kLineEvery : visible_ && since < kRedrawSeconds) return;
  draw(note);
}

void ProgressBar::end() {
  hide();
  const double seconds = clock_() - start_;
  if (seconds > kWorthALine) out_ << fmt::format("{}: {} in {}\n", task_, done_, duration_text(seconds)) << std::flush;
}

void ProgressBar::hide() {
  if (visible_) out_ << "\r\x1b[K" << std::flush;
  visible_ = false;
}

double ProgressBar::steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void ProgressBar::draw(const std::string& note) {
  drawn_at_ = clock_();
  std::string tail = total_ > 0 ? fmt::format(" {}/{}", done_, total_) : fmt::format(" {}", done_);
  if (!note.empty()) tail += "  " + note;
  if (done_ > 0 && done_ < total_) {
    const double left = (drawn_at_ - start_) / static_cast<double>(done_) * static_cast<double>(total_ - done_);
    tail += "  " + duration_text(left) + " left";
  }
  if (width_ <= 0) {
    if (done_ != total_) out_ << task_ << tail << '\n' << std::flush;
    return;
  }
  // The last column stays free: some terminals break the line there.
  const int room = width_ - 1 - static_cast<int>(task_.size() + tail.size()) - 3;
  std::string line = task_;
  if (total_ > 0 && room >= kLeastBar) {
    const int bar = std::min(room, kMostBar);
    const auto full = static_cast<int>(std::clamp<int64_t>(done_, 0, total_) * bar / total_);
    line += fmt::format(" [{:#<{}}{:.<{}}]", "", full, "", bar - full);
  }
  line += tail;
  line.resize(std::min(line.size(), static_cast<size_t>(width_ - 1)));
  out_ << '\r' << line << "\x1b[K" << std::flush;
  visible_ = true;
}

int stderr_width() {
  constexpr int kUsualWidth = 80;
  if (isatty(STDERR_FILENO) == 0) return 0;
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : kUsualWidth;
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::ceil(std::max(seconds, 0.0)));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

}  // namespace kaon
