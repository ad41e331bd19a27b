#pragma once
#include <filesystem>

namespace kaon {

/// Files and folders that a program which is interrupted must not leave behind. May be called from any thread.
void remember_temporary(const std::filesystem::path& path);
void forget_temporary(const std::filesystem::path& path);
/// Removes them all, folders with what is in them, and lets no other thread add or drop one ever after: for a program
/// that is about to end.
void remove_temporaries() noexcept;

}  // namespace kaon
