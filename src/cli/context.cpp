#include "cli/context.h"

#include <nlohmann/json.hpp>

#include "base/atomic_file.h"

namespace kaon {

void Context::stream(const std::string& piece) {
  if (flags_.json == "-") return;
  bar_.hide();
  out_ << piece << std::flush;
}

void Context::result(const nlohmann::ordered_json& document, const std::function<void(std::ostream&)>& print) {
  bar_.hide();
  // Names in a model may hold any bytes; invalid UTF-8 becomes U+FFFD instead of an exception.
  const auto text = [&] { return document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + '\n'; };
  if (flags_.json == "-") {
    out_ << text();
  } else {
    if (!flags_.json.empty()) {
      AtomicFile file(flags_.json);
      file.write(text());
      file.commit();
    }
    print(out_);
  }
  out_.flush();
  if (!out_) fail(ErrorCode::Io, "stdout", "cannot write the result");
}

}  // namespace kaon
