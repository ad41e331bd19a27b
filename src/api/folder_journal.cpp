#include "api/folder_journal.h"

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace kaon {

namespace fs = std::filesystem;

FolderJournal::FolderJournal(const fs::path& draft, const std::string& task, const std::string& where)
    : path_(draft / ".kaon_journal") {
  std::string text;
  if (std::ifstream file(path_, std::ios::binary); file) text.assign(std::istreambuf_iterator<char>(file), {});
  // A line that a killed run did not finish is none.
  text.resize(text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1);
  size_t at = text.find('\n');
  if (at != std::string::npos && text.substr(0, at) != task) {
    fail(ErrorCode::InvalidInput, where,
         "what is there was begun with another model, config or calibration data; leave --resume out to start afresh");
  }
  while (at != std::string::npos && at + 1 < text.size()) {
    const size_t end = text.find('\n', at + 1);
    done_.insert(text.substr(at + 1, end - at - 1));
    at = end;
  }
  std::error_code error;
  if (!text.empty()) fs::resize_file(path_, text.size(), error);
  file_.open(path_, std::ios::binary | (text.empty() ? std::ios::trunc : std::ios::app));
  if (text.empty()) file_ << task << '\n' << std::flush;
  if (error) fail(ErrorCode::Io, path_.string(), "cannot be written: {}", error.message());
  expect_written();
}

void FolderJournal::add(const std::string& part) {
  file_ << part << '\n' << std::flush;
  expect_written();
  done_.insert(part);
}

void FolderJournal::expect_written() const {
  if (!file_) fail(ErrorCode::Io, path_.string(), "cannot be written: {}", std::strerror(errno));
}

void FolderJournal::remove() {
  file_.close();
  fs::remove(path_);
}

}  // namespace kaon
