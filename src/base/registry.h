#pragma once
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace kaon {

/// Named things of one kind, kept in the order they were added. A duplicate name throws.
/// Each kind has a folder; CMake generates `<folder>_all.cpp`, which calls `register_<file>` for every file in it.
template <typename T>
class Registry {
 public:
  /// `kind` is the noun used in messages: "format", "observer".
  explicit Registry(std::string kind) : kind_(std::move(kind)) {}

  void add(const std::string& name, T item) {
    if (!index_.emplace(name, items_.size()).second) {
      fail(ErrorCode::Internal, name, "this {} is registered twice", kind_);
    }
    items_.emplace_back(name, std::move(item));
  }

  const T* find(const std::string& name) const {
    const auto it = index_.find(name);
    return it == index_.end() ? nullptr : &items_[it->second].second;
  }

  /// Throws with the nearest known name.
  const T& get(const std::string& name) const {
    if (const T* item = find(name)) return *item;
    const std::string near = nearest(name, names());
    fail(ErrorCode::InvalidInput, name, "unknown {}{}", kind_, near.empty() ? "" : "; did you mean '" + near + "'?");
  }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    names.reserve(items_.size());
    for (const auto& [name, item] : items_) names.push_back(name);
    return names;
  }

  const std::vector<std::pair<std::string, T>>& items() const { return items_; }

 private:
  std::string kind_;
  std::vector<std::pair<std::string, T>> items_;
  std::map<std::string, size_t> index_;
};

}  // namespace kaon
