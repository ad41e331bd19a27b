#include "doctor/journal.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "base/error.h"
#include "base/json_text.h"

namespace kaon {
namespace {

using nlohmann::json;

json parse_line(const std::string& line) { return json::parse(line, nullptr, false); }

}  // namespace

Journal::Journal(std::filesystem::path path, const std::string& subject, bool resume) : path_(std::move(path)) {
  std::string kept;
  std::ifstream file(path_, std::ios::binary);
  if (resume && file) {
    std::stringstream text;
    text << file.rdbuf();
    std::string line;
    bool first = true;
    while (std::getline(text, line)) {
      const bool whole = !text.eof();  // the last line of a killed run may lack its end
      const json entry = whole ? parse_line(line) : json(json::value_t::discarded);
      if (entry.is_discarded() || !entry.is_object()) break;
      if (first) {
        if (!entry.contains("subject") || entry["subject"] != subject) {
          fail(ErrorCode::InvalidInput, path_.string(),
               "belongs to another run (other model, config, data or options); start anew without --resume");
        }
        first = false;
      } else if (entry.contains("key") && entry["key"].is_string() && entry.contains("value")) {
        entries_[entry["key"].get<std::string>()] = json_text(entry["value"]);
      }
      kept += line + '\n';
    }
  }
  unwritten_ = kept.empty() ? json_text(json{{"subject", subject}}) + '\n' : kept;
}

const std::string* Journal::find(const std::string& key) const {
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second;
}

void Journal::note(const std::string& key, std::string value) {
  if (!path_.empty()) {
    std::ofstream out(path_, std::ios::binary | (unwritten_.empty() ? std::ios::app : std::ios::trunc));
    out << std::exchange(unwritten_, "") << "{\"key\":" << json_text(json(key)) << ",\"value\":" << value << "}\n";
    out.flush();
    if (!out) fail(ErrorCode::Io, path_.string(), "cannot be written; is the disk full?");
  }
  entries_[key] = std::move(value);
}

}  // namespace kaon
