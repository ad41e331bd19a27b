#pragma once
#include <map>
#include <span>
#include <string>

namespace kaon {

/// A setting of an observer or an algorithm, by name in a config.
struct Option {
  std::string name;
  double value = 0;  ///< default
  double min = 0;
  double max = 0;
  std::string help;
  bool whole = false;  ///< takes whole numbers only
  bool flag = false;   ///< takes true and false, which are 1 and 0 here
};

using OptionValues = std::map<std::string, double>;

/// Every one of `options`: what `given` says, else its default. Throws InvalidConfig at `where` for one that is unknown
/// or out of bounds; `owner` is "observer mse", "algorithm gptq".
OptionValues checked_options(std::span<const Option> options, const OptionValues& given, const std::string& owner,
                             const std::string& where);

}  // namespace kaon
