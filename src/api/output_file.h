#pragma once
#include <filesystem>
#include <vector>

namespace kaon {

/// Says before the work whether `path` can be written after it: throws Io where it is a folder or lies where nobody may
/// write, and InvalidInput where it is one of `inputs`, unless `force`. Leaves nothing behind.
void check_output(const std::filesystem::path& path, const std::vector<std::filesystem::path>& inputs = {},
                  bool force = false);

/// Whether `path` is a device, a pipe or the like: it is written into, and nothing is put beside it.
bool is_device(const std::filesystem::path& path);

/// Makes the folder that `path` lies in.
void make_folder_of(const std::filesystem::path& path);

}  // namespace kaon
