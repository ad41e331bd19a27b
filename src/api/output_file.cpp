#include "api/output_file.h"

#include <cstring>

#include "base/atomic_folder.h"
#include "base/error.h"

namespace kaon {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 40;  // as the kernel follows

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

}  // namespace

void check_output(const fs::path& path, const std::vector<fs::path>& inputs, bool force) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (fs::is_directory(status) || !path.has_filename()) {
    fail(ErrorCode::Io, path.string(), "is a folder; name the file to write");
  }
  for (const fs::path& input : inputs) {
    if (force || !fs::equivalent(path, input, error) || error) continue;
    fail(ErrorCode::InvalidInput, path.string(), "is read from; name another file, or allow it with --force");
  }
  if (is_device(path)) return;
  fs::path target = path;  // what a link points to is what is replaced
  for (int i = 0; i < kMostLinks && fs::is_symlink(target, error); ++i) {
    target = folder_of(target) / fs::read_symlink(target, error);
  }
  fs::path folder = folder_of(target);
  while (!fs::exists(folder, error) && folder != folder_of(folder)) folder = folder_of(folder);
  if (!fs::is_directory(folder, error)) {
    fail(ErrorCode::Io, path.string(), "cannot be written: {} is no folder", folder.string());
  }
  if (const int why = try_to_make_in(folder); why != 0) {
    fail(ErrorCode::Io, path.string(), "cannot be written: {}: {}", folder.string(), std::strerror(why));
  }
}

bool is_device(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  return fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status);
}

void make_folder_of(const fs::path& path) {
  std::error_code error;
  fs::create_directories(folder_of(path), error);
  if (error) fail(ErrorCode::Io, path.string(), "cannot be written: {}", error.message());
}

}  // namespace kaon
