#include <algorithm>
#include <array>
#include <string>

#include "towline/base/options.h"

namespace towline {
namespace {

// By name. A default is written as a user would write it; an empty one means "not set".
constexpr std::array kTable = {
    OptionSpec{"config", OptionKind::kText, "", "",
               "file of `name = value` lines; flags and environment come before it"},
    OptionSpec{"deadline", OptionKind::kDuration, "30m", "", "how long a whole load or pull may take"},
    OptionSpec{"gc_timeout", OptionKind::kDuration, "1h", "", "towlined: a stale source is forgotten after this long"},
    OptionSpec{"heartbeat_interval",
               OptionKind::kDuration,
               "10s",
               "",
               "how often a replica tells the server that it lives",
               {},
               "100ms"},
    OptionSpec{"heartbeat_timeout",
               OptionKind::kDuration,
               "60s",
               "",
               "towlined: a source that was silent for this long is stale",
               {},
               "100ms"},
    OptionSpec{"listen", OptionKind::kText, "127.0.0.1:9310", "",
               "towlined: address to serve on; port 0 picks a free one"},
    OptionSpec{"load_mode", OptionKind::kChoice, "auto", "",
               "how checkpoint files are read: past the page cache or through it", "auto|direct|buffered"},
    OptionSpec{"log_format", OptionKind::kChoice, "text", "", "log lines for people or for machines", "text|json"},
    OptionSpec{"log_level", OptionKind::kChoice, "info", "", "least severe line that is logged",
               "debug|info|warning|error"},
    OptionSpec{"metrics_listen", OptionKind::kText, "", "",
               "address that answers /metrics (Prometheus) and /healthz; port 0 picks a free one"},
    OptionSpec{"metrics_scheme", OptionKind::kText, "", "", "label `scheme` of every measurement: free text"},
    OptionSpec{"pool_reg", OptionKind::kBool, "false", "",
               "register memory by allocation instead of by tensor: faster with many tensors, and peers may then read "
               "whatever else lies in those allocations"},
    OptionSpec{"reaper_interval",
               OptionKind::kDuration,
               "10s",
               "",
               "towlined: how often silent sources are looked for",
               {},
               "100ms"},
    OptionSpec{"rpc_deadline", OptionKind::kDuration, "30s", "", "how long one call to the server may take", {}, "1ms"},
    OptionSpec{"server", OptionKind::kText, "127.0.0.1:9310", "", "address of the metadata server"},
    OptionSpec{"store", OptionKind::kText, "sqlite:towlined.sqlite", "",
               "towlined: where records live: `memory:` or `sqlite:PATH`"},
    OptionSpec{"transport", OptionKind::kChoice, "ucx", "", "what carries the bytes; in_memory is for one process",
               "ucx|in_memory"},
    OptionSpec{"verify", OptionKind::kBool, "true", "", "check each tensor's digest after a load or pull"},
    OptionSpec{"window", OptionKind::kBytes, "64MiB", "", "bytes that may be in flight at once", {}, "1"},
    OptionSpec{"worker_advertise", OptionKind::kText, "", "",
               "how others reach `worker_listen`: HOST or HOST:PORT; not set: as it listens"},
    OptionSpec{"worker_listen", OptionKind::kText, "127.0.0.1:0", "",
               "where a replica that serves answers for its manifest; port 0 picks a free one"},
};

std::string_view kind_name(OptionKind kind) {
  constexpr std::array<std::string_view, 6> kNames = {"text", "true or false", "number", "size", "time", "choice"};
  return kNames[static_cast<size_t>(kind)];
}

/// What a value looks like: the choices, or the kind with its unit.
std::string form(const OptionSpec& spec) {
  if (spec.kind == OptionKind::kChoice) {
    std::string text;
    for (const char c : spec.choices) text += c == '|' ? std::string(", ") : std::string(1, c);
    return text;
  }
  return spec.unit.empty() ? std::string(kind_name(spec.kind))
                           : fmt::format("{} of {}", kind_name(spec.kind), spec.unit);
}

}  // namespace

std::span<const OptionSpec> option_table() { return kTable; }

std::string option_table_markdown(std::span<const OptionSpec> table) {
  std::string page =
      "# Settings\n\n"
      "Generated from `src/towline/base/option_table.cc`; a test fails when this page is not what the table says\n"
      "(`TOWLINE_UPDATE_GOLDEN=1` makes that test write it).\n\n"
      "A flag comes before the environment, the environment before the file that `config` names, the file before the\n"
      "default. `towline config` prints each value and where it came from. Sizes are powers of two (`64MiB`, `64m`);\n"
      "times are `250ms`, `5s`, `2m`, `1h` or `never`; true and false are also `on`/`off`, `yes`/`no`, `1`/`0`.\n\n"
      "| In a file | Flag | Environment | Value | Default | What it is |\n|---|---|---|---|---|---|\n";
  for (const OptionSpec& spec : table) {
    const std::string fallback = spec.fallback.empty() ? std::string("not set") : fmt::format("`{}`", spec.fallback);
    page += fmt::format("| `{}` | `{}` | `{}` | {} | {} | {} |\n", spec.name, flag_name(spec.name),
                        environment_name(spec.name), form(spec), fallback, spec.help);
  }
  return page;
}

}  // namespace towline
