#include "api/doctor_page.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "api/doctor.h"
#include "base/json_text.h"
#include "debug/debug_model.h"
#include "doctor/part.h"
#include "report/html.h"
#include "report/page_data.h"

namespace kaon {
namespace {

using nlohmann::json;

constexpr int64_t kSamples = 32;
constexpr size_t kPictured = 2;  ///< quantizers of each cause

DebugReport look(const QuantizedModel& quantized, const Diagnosis& diagnosis, const Dataset& data, int64_t batch,
                 Progress& progress) {
  const int64_t fixed = batch_for(quantized.model.graph, batch, data);
  const Part samples(data, 0, std::min(data.size(), std::max(kSamples / fixed, int64_t{1}) * fixed));
  DebugOptions options;
  options.act_hist = true;
  options.effects = false;  // the doctor has measured them
  options.batch = batch;
  options.progress = &progress;
  DebugReport report = debug(quantized, samples, options);
  report.model = diagnosis.model;
  report.scheme = diagnosis.scheme;
  return report;
}

const QuantizerDebug* find(const DebugReport& report, const std::string& tensor, Slot kind) {
  const auto is_it = [&](const QuantizerDebug& one) { return one.tensor == tensor && one.kind == kind; };
  const auto found = std::ranges::find_if(report.quantizers, is_it);
  return found == report.quantizers.end() ? nullptr : &*found;
}

}  // namespace

void write_doctor_pages(const Diagnosis& diagnosis, const Dataset& data, int64_t batch,
                        const std::filesystem::path& folder, Progress& progress) {
  const DebugReport before = look(diagnosis.before, diagnosis, data, batch, progress);
  write_html(before, folder / "before.html");
  json page = {{"diagnosis", json::parse(json_text(to_json(diagnosis)))},
               {"evidence", json::array()},  // in its order, which an object's keys here have not
               {"pictures", json::array()},
               {"pages", json::array({json::array({"before.html", "Every layer as it was brought in."})})}};
  std::optional<DebugReport> after;
  if (!diagnosis.cure.changes.empty()) {
    after = look(diagnosis.after, diagnosis, data, batch, progress);
    write_html(*after, folder / "after.html");
    page["pages"].push_back({"after.html", "Every layer as prescribed."});
  }
  for (const Cause& cause : diagnosis.causes) page["evidence"].push_back(cause.evidence);
  for (size_t cause = 0; cause < diagnosis.causes.size(); ++cause) {
    const std::vector<int64_t>& guilty = diagnosis.causes[cause].quantizers;
    for (size_t i = 0; i < std::min(guilty.size(), kPictured); ++i) {
      const Quantizer& own = diagnosis.before.quantizers[static_cast<size_t>(guilty[i])];
      const QuantizerDebug* was = find(before, own.tensor, own.kind);
      const QuantizerDebug* is = after ? find(*after, own.tensor, own.kind) : nullptr;
      if (was == nullptr) continue;
      page["pictures"].push_back({{"cause", cause},
                                  {"layer", own.serves.front().layer},
                                  {"slot", name_of(own.serves.front().slot)},
                                  {"before", quantizer_data(*was)},
                                  {"after", is == nullptr ? json(nullptr) : quantizer_data(*is)}});
    }
  }
  write_doctor_html(script_text(page), folder / "report.html");
}

}  // namespace kaon
