#include <fmt/core.h>

#include "app.h"
#include "verbs.h"

namespace towline::cli {
namespace {

/// Nothing where a setting has none.
std::optional<std::string> said(std::string_view text) {
  return text.empty() ? std::nullopt : std::optional(std::string(text));
}

Result<void> run_config(App& app, const Arguments&) {
  Table table({{"setting"}, {"value"}, {"from"}, {"what it is"}});
  std::vector<Document> rows;
  for (const OptionSpec& spec : app.options().table()) {
    const Options::Value& value = app.options().value(spec.name);
    std::string origin(origin_name(value.origin));
    if (!value.where.empty()) origin += " " + value.where;
    table.add({std::string(spec.name), value.text.empty() ? "(not set)" : value.text, origin, std::string(spec.help)});
    Document row;
    row.set("name", spec.name).set("value", said(value.text)).set("default", said(spec.fallback));
    row.set("unit", said(spec.unit));
    row.set("origin", origin_name(value.origin));
    row.set("where", value.where.empty() ? std::nullopt : std::optional(value.where)).set("help", spec.help);
    rows.push_back(std::move(row));
  }
  return app.print(Document("towline.config/1").set("settings", rows), table.text());
}

std::vector<std::string_view> all_settings() {
  std::vector<std::string_view> names;
  for (const OptionSpec& spec : option_table())
    if (spec.name != "config" && spec.name != "log_level" && spec.name != "log_format") names.push_back(spec.name);
  return names;
}
const std::vector<std::string_view> kSettings = all_settings();

}  // namespace

const VerbSpec kConfig{.name = "config",
                       .help = "print every setting, its value and where it came from",
                       .positionals = {},
                       .flags = {},
                       .settings = kSettings,
                       .run = &run_config};

}  // namespace towline::cli
