#include "cli/context.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "base/atomic_file.h"
#include "base/json_text.h"
#include "base/printable.h"

namespace kaon {

void Context::stream(const std::string& piece) {
  if (flags_.json == "-") return;
  bar_.hide();
  out_ << piece << std::flush;
}

void Context::result(const nlohmann::ordered_json& document, const std::function<void(std::ostream&)>& print) {
  bar_.hide();
  const auto text = [&] { return json_text(document, 2) + '\n'; };
  if (flags_.json == "-") {
    out_ << text();
  } else {
    if (!flags_.json.empty()) {
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
