#pragma once
#include <string>
#include <vector>

namespace kaon {

/// A number for people, in about `digits` significant digits: "0.25", "1200", "35 M", "3.1·10⁻⁷", "NaN".
std::string short_number(double value, int digits = 3);

struct Tick {
  double value = 0;
  std::string label;  ///< empty: a minor tick
};

/// Round values (1, 2, 2.5 or 5 times a power of ten) inside [low, high], about `wanted` of them.
std::vector<Tick> nice_ticks(double low, double high, int wanted);
/// Powers of ten inside [low, high], thinned to about `wanted`; 2, 5 join where there are fewer than three.
std::vector<Tick> log_ticks(double low, double high, int wanted);

/// Maps values to pixels. Any range is accepted: one that is empty or not finite is replaced by a sensible one.
class Axis {
 public:
  enum class Kind { Linear, Log };
  /// `low` lies at pixel `start`, `high` at `end`. For Log, low and high are positive.
  Axis(Kind kind, double low, double high, double start, double end);

  double low() const { return low_; }
  double high() const { return high_; }
  /// Values outside the range lie at its end.
  double at(double value) const;
  std::vector<Tick> ticks(int wanted) const;

 private:
  Kind kind_;
  double low_;
  double high_;
  double start_;
  double end_;
};

}  // namespace kaon
