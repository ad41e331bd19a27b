#include "cli/context.h"

#include <algorithm>
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

namespace {

/// A line "who: what: details".
struct Note {
  explicit Note(const std::string& line) {
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) who = line.substr(0, colon);
    what = colon == std::string::npos ? line : line.substr(colon + 2);
    kind = what.substr(0, what.find(": "));
  }

  std::string who;
  std::string what;
  std::string kind;  ///< `what` without its details
};

constexpr size_t kFew = 3;  ///< so many lines of one kind are shown one by one where their details differ

}  // namespace

void Context::notes(const std::vector<std::string>& lines) {
  std::map<std::string, std::vector<Note>> by_what, by_kind;
  for (const std::string& line : lines) {
    const Note one(line);
    if (by_what[one.what].empty()) by_kind[one.kind].push_back(one);
    by_what[one.what].push_back(one);
  }
  std::set<std::string> said;
  for (const std::string& line : lines) {
    const Note one(line);
    const std::vector<Note>& same = by_what.at(one.what);
    const std::vector<Note>& alike = by_kind.at(one.kind);
    if (flags_.verbose || (same.size() == 1 && alike.size() <= kFew)) {
      note("{}", line);
    } else if (alike.size() > kFew) {
      if (!said.insert(one.kind).second) continue;
      size_t count = 0;
      for (const Note& other : alike) count += by_what.at(other.what).size();
      note("{} times, from {} to {}: {} (-v lists them); the first: {}", count, one.who,
           by_what.at(alike.back().what).back().who, one.kind,
           one.what.substr(std::min(one.what.size(), one.kind.size() + 2)));
    } else if (said.insert(one.what).second) {
      note("{} times, from {} to {}: {} (-v lists them)", same.size(), same.front().who, same.back().who, one.what);
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
