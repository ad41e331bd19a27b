#include "cli/context.h"

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "api/output_file.h"
#include "base/atomic_file.h"
#include "base/json_text.h"
#include "base/printable.h"

namespace kaon {

void Context::stream(const std::string& piece) {
  if (flags_.json == "-") return;
  bar_.hide();
  out_ << piece << std::flush;
}

void Context::notes(const std::vector<std::string>& lines) {
  const auto split = [](const std::string& line) {
    const size_t colon = line.find(": ");
    return colon == std::string::npos ? std::pair(std::string(), line)
                                      : std::pair(line.substr(0, colon), line.substr(colon + 2));
  };
  std::map<std::string, std::vector<std::string>> who;
  for (const std::string& line : lines) who[split(line).second].push_back(split(line).first);
  std::set<std::string> said;
  for (const std::string& line : lines) {
    const std::string what = split(line).second;
    const std::vector<std::string>& names = who.at(what);
    if (flags_.verbose || names.size() == 1) {
      note("{}", line);
    } else if (said.insert(what).second) {
      note("{} times, from {} to {}: {} (-v lists them)", names.size(), names.front(), names.back(), what);
    }
  }
}

void Context::result(const nlohmann::ordered_json& document, const std::function<void(std::ostream&)>& print) {
  bar_.hide();
  const auto text = [&] { return json_text(document, 2) + '\n'; };
  if (flags_.json == "-") {
    out_ << text();
  } else {
    if (!flags_.json.empty()) {
      make_folder_of(flags_.json);
      AtomicFile file(flags_.json);
      file.write(text());
      file.commit();
    }
    std::ostringstream shown;
    print(shown);
    out_ << printable(shown.str());  // names in a model may hold a terminal's commands
  }
  out_.flush();
  if (!out_) fail(ErrorCode::Io, "stdout", "cannot write the result");
}

}  // namespace kaon
