#pragma once

#include <span>
#include <string_view>

#include "arguments.h"
#include "towline/base/options.h"
#include "towline/base/result.h"

namespace towline::cli {

class App;

/// One flag of a verb. A flag with a value placeholder takes one; `--name=false` is not a thing.
struct FlagSpec {
  std::string_view name;         ///< without dashes
  std::string_view placeholder;  ///< `PATH`; empty for a switch
  std::string_view help;
  bool repeatable = false;
  OptionKind kind = OptionKind::kText;  ///< what its value must be; anything else is misuse
  std::string_view least = {};          ///< bounds of its value, as a user would write them; empty: none
  std::string_view most = {};
};
struct PositionalSpec {
  std::string_view name;  ///< shown in capitals
  std::string_view help;
  bool required = true;
  std::string_view choices = {};  ///< `a|b|c`; empty: anything
};
/// One row of the verb table; each verb's file defines its own.
struct VerbSpec {
  std::string_view name;
  std::string_view help;
  std::span<const PositionalSpec> positionals;
  std::span<const FlagSpec> flags;
  std::span<const std::string_view> settings;  ///< rows of the settings table that are flags of this verb
  Result<void> (*run)(App& app, const Arguments& arguments);
};

extern const VerbSpec kServe;
extern const VerbSpec kLoad;
extern const VerbSpec kPull;
extern const VerbSpec kLs;
extern const VerbSpec kVerify;
extern const VerbSpec kInfo;
extern const VerbSpec kConfig;
extern const VerbSpec kMakeCheckpoint;
extern const VerbSpec kRefit;
extern const VerbSpec kBench;

}  // namespace towline::cli
