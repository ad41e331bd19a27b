#pragma once
#include <functional>
#include <ostream>
#include <string>

#include "base/progress.h"

namespace kaon {

/// Draws the task at hand as one line: name, bar, steps, note, time left. On a terminal the line is redrawn in place
/// and goes away at the end; elsewhere a line comes every few seconds. Either way a task of over five seconds leaves a
/// line with its time.
class ProgressBar : public Progress {
 public:
  /// Seconds from any moment on.
  using Clock = std::function<double()>;

  /// `width` is that of the terminal in columns; 0: this is no terminal.
  ProgressBar(std::ostream& out, int width, Clock clock = steady_seconds);
  ~ProgressBar() override;
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void begin(const std::string& task, int64_t total) override;
  void at(int64_t done, const std::string& note = {}) override;
  void end() override;
  /// Takes the line away so that something else can be written; the next at() draws it again.
  void hide();

  static double steady_seconds();

 private:
  void draw(const std::string& note);

  std::ostream& out_;
  int width_;
  Clock clock_;
  std::string task_;
  int64_t total_ = 0;
  int64_t done_ = 0;
  double start_ = 0;
  double drawn_at_ = 0;
  bool visible_ = false;
};

/// Columns of the terminal that stderr is, or 0 where it is none.
int stderr_width();

/// "9 s", "3 min 05 s", "1 h 02 min".
std::string duration_text(double seconds);

}  // namespace kaon
