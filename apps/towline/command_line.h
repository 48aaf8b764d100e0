#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>

#include "arguments.h"
#include "towline/base/options.h"
#include "towline/base/result.h"
#include "verbs.h"

namespace towline::cli {

/// What a command line asks for.
struct Command {
  const VerbSpec* verb = nullptr;
  Arguments arguments;
  std::map<std::string, std::string> settings;  ///< flags that are rows of the settings table
  bool json = false;
  int verbosity = 0;  ///< -v counts up, -q down
  /// --help or --version: print this and exit 0.
  std::optional<std::string> text;
};

/// Whether `--json` is among the words, whatever else is wrong with them.
bool wants_json(int argc, const char* const* argv);

/// Errors: kInvalidArgument - misuse, with the usage hint in the message.
Result<Command> parse_command_line(std::span<const VerbSpec* const> verbs, int argc, const char* const* argv);

}  // namespace towline::cli
