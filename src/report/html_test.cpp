#include "report/html.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "report/browser_test.h"
#include "report/embedded.h"
#include "report/page_data.h"
#include "report/sample_report_test.h"

namespace kaon {
namespace {

std::string read(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

std::filesystem::path folder() {
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / "kaon_html_test";
  std::filesystem::create_directories(path);
  return path;
}

/// Every occurrence; there must be one.
void replace(std::string& text, const std::string& what, const std::string& with) {
  size_t at = text.find(what);
  ASSERT_NE(at, std::string::npos) << what;
  for (; at != std::string::npos; at = text.find(what, at + with.size())) text.replace(at, what.size(), with);
}

/// Opens the page in a browser without network, uses it, and returns "fine" or what was wrong.
std::string try_page(const DebugReport& report, const std::string& name, int charts) {
  const std::filesystem::path path = folder() / (name + ".html");
  write_html(report, path);
  std::string script = read(std::filesystem::path(KAON_SOURCE_DIR) / "src/report/page/browser_test.js");
  replace(script, "EXPECTED_ROWS", std::to_string(report.rows.size()));
  replace(script, "EXPECTED_CHARTS", std::to_string(charts));
  return use_in_browser(path, script);
}

TEST(Html, WorksInABrowser) {
  if (browser().empty()) {
    std::puts("not run: there is no chromium here");
    return;
  }
  EXPECT_EQ(try_page(sample_report(12), "small", 6), "fine");
  EXPECT_EQ(try_page(sample_report(300), "large", 6), "fine");
}

TEST(Html, TheBrowserTestFindsWhatIsWrong) {
  if (browser().empty()) {
    std::puts("not run: there is no chromium here");
    return;
  }
  EXPECT_NE(try_page(sample_report(4, false), "without", 6), "fine");  // activations without histograms: fewer charts
}

TEST(Html, SurvivesStrangeNamesAndNumbers) {
  DebugReport report = sample_report(3);
  report.model = "</script><script>pageErrors.push('markup')</script>{{data}}";
  for (DebugRow& row : report.rows) {
    if (row.layer == report.rows.front().layer && &row != &report.rows.front())
      row.layer = "</script><b>\"'&<!-- \xff\x01";
  }
  report.rows.front().layer = "</script><b>\"'&<!-- \xff\x01";
  for (QuantizerDebug& quantizer : report.quantizers) quantizer.reading = "<img src=x onerror=pageErrors.push('img')>";
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const std::vector<float> broken{nan, inf, -inf};
  QuantizerDebug empty = sample_quantizer(99, Slot::Input, 1, 0, false);
  empty.input = Moments();
  empty.input.update(FloatView(broken));
  empty.io = empty.local = empty.ref_output = ErrorMetrics();
  empty.channels.clear();
  empty.representable.reset();
  report.rows.insert(report.rows.begin(), {"broken", Slot::Input, "", report.quantizers.size(), 1000});
  report.quantizers.push_back(empty);
  report.nan = NonFiniteAt{"broken", Slot::Input, "value<99>", false, 3, 17, {1, 2}, nan};
  report.skipped.push_back({"<i>skipped</i>", "because </ul>"});

  const std::string data = page_data(report);
  EXPECT_EQ(data.find('<'), std::string::npos);
  const nlohmann::json parsed = nlohmann::json::parse(data);
  EXPECT_EQ(parsed["model"], report.model);
  EXPECT_TRUE(parsed["quantizers"].back()["mse"].is_null());
  EXPECT_TRUE(parsed["quantizers"].back()["output_gain"].is_null());
  EXPECT_EQ(parsed["quantizers"][1]["output_gain"], 0.06);
  EXPECT_EQ(parsed["outputs"][0]["agreement"], 0.99);
  EXPECT_EQ(parsed["nan"]["element"], nlohmann::json({1, 2}));
  if (browser().empty()) {
    std::puts("not run: there is no chromium here");
    return;
  }
  EXPECT_EQ(try_page(report, "strange", 2), "fine");
  DebugReport constant = sample_report(1);
  constant.ranked = 0;  // as without data
  constant.outputs.clear();
  for (QuantizerDebug& quantizer : constant.quantizers) {
    const std::vector<float> same(100, 0.37F);
    quantizer.input_histogram = quantizer.output_histogram = quantizer.reference_histogram = Histogram(512);
    quantizer.input_histogram.update(FloatView(same));
    quantizer.output_histogram.update(FloatView(same));
    quantizer.output_gain.reset();
    quantizer.output_alone.reset();
  }
  EXPECT_EQ(try_page(constant, "constant", 6), "fine");
}

TEST(Html, AsksForNothingOutside) {
  const std::filesystem::path path = folder() / "alone.html";
  write_html(sample_report(2), path);
  std::string page = read(path);
  replace(page, std::string(embedded_file("chart.js")), "");  // its licence names its home
  EXPECT_EQ(page.find("http://"), std::string::npos);
  EXPECT_EQ(page.find("https://"), std::string::npos);
  EXPECT_EQ(page.find("src="), std::string::npos);
  EXPECT_EQ(page.find("{{"), std::string::npos);
  EXPECT_EQ(std::string(embedded_file("chart.js")).find("</script"), std::string::npos);
  EXPECT_EQ(std::string(embedded_file("page.js")).find("</script"), std::string::npos);
}

TEST(Html, IsSmallAndFast) {
  const DebugReport report = sample_report(300);
  const std::filesystem::path path = folder() / "size.html";
  write_html(report, path);
  EXPECT_LT(std::filesystem::file_size(path), 8'000'000U);
  const std::string data = page_data(report);
  const nlohmann::json parsed = nlohmann::json::parse(data);
  ASSERT_EQ(parsed["quantizers"].size(), 900U);
  const auto& histogram = parsed["quantizers"][0]["input"];
  double total = 0;
  for (const auto& count : histogram["counts"]) total += count.get<double>();
  EXPECT_NEAR(total, 6144, 6144 * 0.005);  // thinned to four digits, and the outer bars are widened
}

TEST(Html, FailsWhereItCannotWrite) {
  try {
    write_html(sample_report(1), folder() / "missing" / "page.html");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::Io);
  }
}

}  // namespace
}  // namespace kaon
