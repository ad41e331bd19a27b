#include "api/schemes.h"

#include <CLI/App.hpp>
#include <nlohmann/json.hpp>

#include "cli/context.h"
#include "cli/table.h"
#include "cli/verb.h"

namespace kaon {

namespace {

std::string or_dash(const std::string& text) { return text.empty() ? "–" : text; }

void print_schemes(std::ostream& out, const std::vector<SchemeInfo>& schemes) {
  Table table({{"scheme"}, {"strategy"}, {"weight"}, {"input"}, {"output"}, {"needs data"}, {"exports"}});
  for (const SchemeInfo& info : schemes) {
    table.add_row({info.name, info.strategy, info.weight, or_dash(info.input), or_dash(info.output),
                   info.needs_data ? "yes" : "no", or_dash(fmt::format("{}", fmt::join(info.exports, ", ")))});
  }
  table.print(out);
}

}  // namespace

void register_schemes(Registry<Verb>& verbs) {
  verbs.add("schemes", {.group = "Reference",
                        .summary = "every scheme: what it quantizes, how, and what it needs",
                        .examples = {"kaon schemes", "kaon schemes --json"},
                        .declare = [](CLI::App&) {
                          return [](Context& context) {
                            const auto schemes = list_schemes();
                            context.result(to_json(schemes), [&](std::ostream& out) { print_schemes(out, schemes); });
                          };
                        }});
}

}  // namespace kaon
