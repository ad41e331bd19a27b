#include "report/html.h"

#include <string>
#include <string_view>

#include "base/atomic_file.h"
#include "base/error.h"
#include "report/embedded.h"
#include "report/page_data.h"

namespace kaon {

namespace {

std::string_view part(std::string_view name, std::string_view data) {
  if (name == "data") return data;
  const std::string_view file = embedded_file(name);
  if (file.empty()) fail(ErrorCode::Internal, "page.html", "asks for '{}', which the program does not hold", name);
  return file;
}

/// Each {{name}} of the skeleton stands for a part; what the parts hold is not looked at again.
void write_page(std::string_view skeleton, std::string_view data, const std::filesystem::path& path) {
  AtomicFile file(path);
  std::string_view rest = embedded_file(skeleton);
  while (!rest.empty()) {
    const size_t open = rest.find("{{");
    file.write(rest.substr(0, open));
    if (open == std::string_view::npos) break;
    const size_t close = rest.find("}}", open);
    if (close == std::string_view::npos) fail(ErrorCode::Internal, std::string(skeleton), "an open {{ is never closed");
    file.write(part(rest.substr(open + 2, close - open - 2), data));
    rest.remove_prefix(close + 2);
  }
  file.commit();
}

}  // namespace

void write_html(const DebugReport& report, const std::filesystem::path& path) {
  write_page("page.html", page_data(report), path);
}

void write_doctor_html(const std::string& data, const std::filesystem::path& path) {
  write_page("doctor.html", data, path);
}

}  // namespace kaon
