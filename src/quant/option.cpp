#include "quant/option.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"

namespace kaon {

OptionValues checked_options(std::span<const Option> options, const OptionValues& given, const std::string& owner,
                             const std::string& where) {
  OptionValues values;
  for (const Option& option : options) values[option.name] = option.value;
  for (const auto& [name, value] : given) {
    const auto option =
        std::find_if(options.begin(), options.end(), [&, &wanted = name](const Option& o) { return o.name == wanted; });
    if (option == options.end()) {
      std::vector<std::string> known;
      for (const Option& o : options) known.push_back(o.name);
      fail(ErrorCode::InvalidConfig, where, "{} has no option '{}'; it has {}", owner, name,
           known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")));
    }
    if (option->flag && value != 0 && value != 1) {
      fail(ErrorCode::InvalidConfig, where, "option {} of {} is {}; it must be true or false", name, owner, value);
    }
    if (!option->flag &&
        (!(value >= option->min && value <= option->max) || (option->whole && value != std::floor(value)))) {
      fail(ErrorCode::InvalidConfig, where, "option {} of {} is {}; it must be {} from {} to {}", name, owner, value,
           option->whole ? "a whole number" : "a number", option->min, option->max);
    }
    values[name] = value;
  }
  return values;
}

}  // namespace kaon
