#include "cli/help.h"

#include <CLI/App.hpp>
#include <algorithm>
#include <map>
#include <ostream>

namespace kaon {

namespace {

using Entry = std::pair<std::string, std::string>;

void print_section(std::ostream& out, const std::string& title, const std::vector<Entry>& entries) {
  if (entries.empty()) return;
  size_t width = 0;
  for (const auto& [left, right] : entries) width = std::max(width, left.size());
  out << '\n' << title << '\n';
  for (const auto& [left, right] : entries) out << fmt::format("  {:<{}}  {}\n", left, width, right);
}

/// "-v, --verbose", "--threads N", "--json[=FILE]"
std::string flag_name(const CLI::Option& option) {
  std::string name;
  for (const std::string& letter : option.get_snames()) name += (name.empty() ? "-" : ", -") + letter;
  for (const std::string& word : option.get_lnames()) name += (name.empty() ? "--" : ", --") + word;
  const std::string type = option.get_type_name();
  const bool takes_value = !type.empty() && type != "FLAG";
  if (takes_value) name += (type.front() == '[' ? "" : " ") + type;
  return name;
}

std::string description(const CLI::Option& option) {
  return option.get_description() + (option.get_required() && !option.get_positional() ? " (required)" : "");
}

/// The flags of `app` in CLI11's group `group`.
std::vector<Entry> flags(const CLI::App& app, const std::string& group) {
  std::vector<Entry> entries;
  for (const CLI::Option* option : app.get_options()) {
    if (option->nonpositional() && option->get_group() == group) {
      entries.emplace_back(flag_name(*option), description(*option));
    }
  }
  return entries;
}

}  // namespace

void print_help(std::ostream& out, const CLI::App& root, const Registry<Verb>& verbs) {
  out << root.get_description() << "\n\nUsage: kaon VERB [ARGUMENTS] [FLAGS]\n";
  std::map<std::string, std::vector<Entry>> groups;
  size_t width = 0;
  for (const auto& [name, verb] : verbs.items()) {
    groups[verb.group].emplace_back(name, verb.summary);
    width = std::max(width, name.size());
  }
  for (auto& [group, entries] : groups) {
    for (auto& [name, summary] : entries) name.resize(width, ' ');
    print_section(out, group, entries);
  }
  print_section(out, "Flags of every verb", flags(root, kCommonGroup));
  out << "\nExamples\n";
  for (const auto& [name, verb] : verbs.items()) out << "  " << verb.examples.front() << '\n';
  out << "\n'kaon VERB --help' says more. Results go to stdout, everything else to stderr.\n"
         "Exit codes: 0 done, 1 the work failed, 2 wrong usage.\n";
}

void print_verb_help(std::ostream& out, const CLI::App& app, const Verb& verb) {
  std::string usage = "kaon " + app.get_name();
  std::vector<Entry> arguments;
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional()) continue;
    const std::string name = option->get_name(true);
    usage += option->get_required() ? " " + name : " [" + name + "]";
    arguments.emplace_back(name, description(*option));
  }
  out << "kaon " << app.get_name() << ": " << verb.summary << "\n\nUsage: " << usage << " [FLAGS]\n";
  print_section(out, "Arguments", arguments);
  print_section(out, "Flags", flags(app, "Options"));
  print_section(out, "Flags of every verb", flags(app, kCommonGroup));
  out << "\nExamples\n";
  for (const std::string& example : verb.examples) out << "  " << example << '\n';
}

}  // namespace kaon
