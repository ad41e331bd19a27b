#include "cli/cli.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <filesystem>
#include <new>
#include <ostream>
#include <span>
#include <string_view>

#include "api/output_file.h"
#include "base/memory_budget.h"
#include "base/parallel.h"
#include "base/printable.h"
#include "base/stopwatch.h"
#include "cli/context.h"
#include "cli/help.h"
#include "cli/verb.h"

namespace kaon {

namespace {

constexpr int kFailed = 1;
constexpr int kWrongUsage = 2;

void declare_common_flags(CLI::App& app, CommonFlags& flags) {
  app.set_help_flag("-h,--help", "print this help")->group(kCommonGroup);
  app.add_flag("-v,--verbose", flags.verbose, "say more on stderr")->group(kCommonGroup);
  app.add_flag("-q,--quiet", flags.quiet, "say nothing on stderr but errors")->group(kCommonGroup);
  app.add_option("--threads", flags.threads, "threads to use (default: the cores of this process)")
      ->check(CLI::Range(1, 1024).description(""))
      ->type_name("N")
      ->group(kCommonGroup);
  if (app.get_option_no_throw("--memory") == nullptr) {  // a verb may know how to make do with less
    app.add_option("--memory", flags.memory, "memory to use, in MiB (default: what the machine has free)")
        ->check(CLI::Range(1, 1 << 30).description(""))
        ->type_name("MIB")
        ->group(kCommonGroup);
  }
  app.add_option("--seed", flags.seed, "seed of everything random (default: 0)")
      ->check(CLI::NonNegativeNumber.description(""))
      ->type_name("N")
      ->group(kCommonGroup);
  // A flag and not an option with an optional value: that would swallow the argument after it.
  app.add_flag("--json{-}", flags.json, "print the result as JSON, or write it to FILE")
      ->type_name("[=FILE]")
      ->group(kCommonGroup);
}

/// "; did you mean 'x'?", or all there are when none is near.
std::string hint(const std::string& word, const std::vector<std::string>& known) {
  const std::string near = nearest(word, known);
  return near.empty() ? fmt::format("; known are {}", fmt::join(known, ", ")) : "; did you mean '" + near + "'?";
}

std::vector<std::string> known_flags(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) names.push_back("-" + name);
  }
  return names;
}

/// What CLI11 could not place, in words; empty when it placed everything.
std::string describe_unknown(const CLI::App& root, const CLI::App& app, const Registry<Verb>& verbs) {
  const auto unknown = root.remaining(true);
  if (unknown.empty()) return "";
  const std::string word = unknown.front().substr(0, unknown.front().find('='));
  if (word.size() > 1 && word.front() == '-')
    return fmt::format("unknown flag '{}'{}", word, hint(word, known_flags(app)));
  if (&app == &root) return fmt::format("unknown verb '{}'{}", word, hint(word, verbs.names()));
  return fmt::format("unexpected argument '{}'", unknown.front());
}

/// CLI11 spells out the largest double where a range has no upper end.
std::string without_endless_range(const std::string& message) {
  const size_t range = message.find(" not in range ");
  const bool endless = range != std::string::npos && message.find(" to 1797693134", range) != std::string::npos;
  return endless ? message.substr(0, range) + " is too small" : message;
}

/// `--json=FILE` must not replace what the command reads, or what it writes beside it.
void check_json(const std::filesystem::path& json, std::span<const char* const> words) {
  namespace fs = std::filesystem;
  for (const std::string_view word : words) {
    if (word.starts_with("--json")) continue;
    const size_t value = word.starts_with("-") ? word.find('=') : std::string_view::npos;
    const fs::path path = value == std::string_view::npos ? word : word.substr(value + 1);
    std::error_code error;
    const bool same = path.lexically_normal() == json.lexically_normal() || fs::equivalent(path, json, error);
    if (!same || is_device(json)) continue;
    throw UsageError(fmt::format("--json={}: the command names this file already; name another", json.string()));
  }
  check_output(json);
}

void run_verb(const std::string& name, const std::function<void(Context&)>& work, const CommonFlags& flags,
              std::span<const char* const> words, std::ostream& out, std::ostream& err) {
  if (flags.threads > 0) set_thread_count(flags.threads);
  set_memory_limit(flags.memory << 20);
  if (!flags.json.empty() && flags.json != "-") check_json(flags.json, words);
  Context context(flags, out, err);
  const Stopwatch watch;
  work(context);
  context.detail("kaon {}: {:.3f} s, {} threads", name, watch.seconds(), thread_count());
}

}  // namespace

int run_cli(int argc, const char* const* argv, std::ostream& out, std::ostream& err) {
  Registry<Verb> verbs("verb");
  register_all_verbs(verbs);

  CLI::App root("kaon " KAON_VERSION ": " KAON_DESCRIPTION, "kaon");
  CommonFlags flags;
  declare_common_flags(root, flags);
  root.set_version_flag("--version", "kaon " KAON_VERSION)->description("print the version")->group(kCommonGroup);
  root.require_subcommand(0, 1);
  std::map<std::string, std::function<void(Context&)>> works;
  for (const auto& [name, verb] : verbs.items()) {
    CLI::App* app = root.add_subcommand(name, verb.summary);
    works[name] = verb.declare(*app);
    declare_common_flags(*app, flags);
  }

  const auto chosen = [&]() -> const CLI::App& {
    const auto apps = root.get_subcommands();
    return apps.empty() ? root : *apps.front();
  };
  const auto print_chosen_help = [&](std::ostream& stream) {
    const CLI::App& app = chosen();
    if (&app == &root) {
      print_help(stream, root, verbs);
    } else {
      print_verb_help(stream, app, verbs.get(app.get_name()));
    }
  };
  const auto wrong_usage = [&](const std::string& message) {
    const std::string verb = &chosen() == &root ? "" : " " + chosen().get_name();
    err << "kaon: " << printable(message) << "\nSee 'kaon" << verb << " --help'.\n";
    return kWrongUsage;
  };

  try {
    root.parse(argc, argv);
    if (&chosen() == &root) {
      print_chosen_help(err);
      return kWrongUsage;
    }
    run_verb(chosen().get_name(), works.at(chosen().get_name()), flags, {argv + 1, argv + argc}, out, err);
    return 0;
  } catch (const CLI::CallForHelp&) {
    print_chosen_help(out);
    return 0;
  } catch (const CLI::CallForVersion& version) {
    out << version.what() << '\n';
    return 0;
  } catch (const CLI::ParseError& error) {
    const std::string unknown = describe_unknown(root, chosen(), verbs);
    return wrong_usage(unknown.empty() ? without_endless_range(error.what()) : unknown);
  } catch (const UsageError& error) {
    return wrong_usage(error.what());
  } catch (const std::bad_alloc&) {
    err << "kaon: out of memory\n";
  } catch (const std::exception& error) {
    err << "kaon: " << printable(error.what()) << '\n';
  }
  return kFailed;
}

}  // namespace kaon
