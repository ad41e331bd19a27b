#pragma once
#include <iosfwd>
#include <string>

#include "cli/verb.h"

namespace kaon {

/// CLI11's option group of the flags that every verb takes.
inline constexpr const char* kCommonGroup = "Common";

/// `kaon --help`: the verbs by group, the common flags, one example for each verb.
void print_help(std::ostream& out, const CLI::App& root, const Registry<Verb>& verbs);

/// `kaon VERB --help`.
void print_verb_help(std::ostream& out, const CLI::App& app, const Verb& verb);

}  // namespace kaon
