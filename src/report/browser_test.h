#pragma once
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

namespace kaon {

/// What a command prints, stdout and stderr together.
inline std::string output_of(const std::string& command) {
  std::string out;
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return out;
  std::array<char, 4096> buffer;
  for (size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) out.append(buffer.data(), n);
  ::pclose(pipe);
  return out;
}

/// The browser that is here, or nothing.
inline std::string browser() {
  for (const char* name : {"chromium", "chromium-browser", "google-chrome"}) {
    if (!output_of(std::string("command -v ") + name).empty()) return name;
  }
  return {};
}

/// Opens a page in a browser without network, runs `script` at its end, and returns what that leaves in #result, or
/// what was written to the console.
inline std::string use_in_browser(const std::filesystem::path& path, const std::string& script) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  std::string page = text.str();
  const size_t title = page.find("<title>"), body = page.rfind("</body>");
  if (title == std::string::npos || body == std::string::npos) return "no page";
  page.insert(body, "<script>" + script + "</script>");
  page.insert(title,
              "<script>window.pageErrors = [];"
              // The browser's clock here is virtual, and does not wait for frames.
              "window.requestAnimationFrame = (f) => setTimeout(() => f(performance.now()), 16);"
              "addEventListener('error', (e) => pageErrors.push(e.message));"
              "addEventListener('unhandledrejection', (e) => pageErrors.push(String(e.reason)));"
              "addEventListener('securitypolicyviolation', (e) => pageErrors.push(e.blockedURI));"
              "</script>");
  const std::string tried = path.string() + "_tried.html", profile = path.string() + "_profile";
  std::ofstream(tried, std::ios::binary) << page;
  const std::string dom = output_of(
      "timeout 120 " + browser() +
      " --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --window-size=1400,1000 --enable-logging=stderr"
      " --user-data-dir='" +
      profile +
      "' --host-resolver-rules='MAP * ~NOTFOUND' --virtual-time-budget=60000 --dump-dom"
      " 'file://" +
      tried + "'");
  std::filesystem::remove_all(profile);
  // "INFO:CONSOLE:12] …" in the browser's log is whatever the page wrote to the console.
  const size_t console = dom.find(":CONSOLE:");
  if (console != std::string::npos) return "console: " + dom.substr(console, dom.find('\n', console) - console);
  const std::string mark = "<pre id=\"result\">";
  const size_t begin = dom.find(mark);
  const size_t end = dom.find("</pre>", begin);
  if (begin == std::string::npos || end == std::string::npos) return "no result: " + dom.substr(0, 2000);
  return dom.substr(begin + mark.size(), end - begin - mark.size());
}

}  // namespace kaon
