#include "command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <deque>
#include <sstream>

namespace towline::cli {
namespace {

constexpr std::string_view kVersion = TOWLINE_VERSION;

std::string flag_of(std::string_view setting) {
  std::string flag(setting);
  for (char& c : flag)
    if (c == '_' || c == '.') c = '-';
  return flag;
}

const OptionSpec& setting_spec(std::string_view name) {
  for (const OptionSpec& spec : option_table())
    if (spec.name == name) return spec;
  TOWLINE_CHECK(false, name);
  return option_table().front();
}

/// Builds the CLI11 parser from the verb table and gathers what it finds.
class Parser {
 public:
  explicit Parser(std::span<const VerbSpec* const> verbs)
      : app_("Moves model weights between replicas, verified, at the speed of the machine.", "towline") {
    app_.require_subcommand(1);
    app_.set_version_flag("-V,--version", std::string("towline ") + std::string(kVersion));
    app_.get_formatter()->column_width(34);
    for (const VerbSpec* verb : verbs) add_verb(*verb);
  }

  Result<Command> parse(int argc, const char* const* argv) {
    const std::vector<std::string> typed(argv + std::min(argc, 1), argv + argc);
    try {
      app_.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      TOWLINE_TRY(check_switches(typed));
      return ended(error, typed);
    }
    TOWLINE_TRY(check_switches(typed));
    for (const auto& [subcommand, verb] : verbs_)
      if (subcommand->parsed()) TOWLINE_TRY(gather(*subcommand, *verb));
    return std::move(command_);
  }

 private:
  Result<Command> ended(const CLI::ParseError& error, const std::vector<std::string>& typed) {
    std::ostringstream out, errors;
    if (app_.exit(error, out, errors) == 0) {
      command_.text = out.str();
      return std::move(command_);
    }
    const std::optional<std::string> unknown = unknown_word(typed);
    return fail(Code::kInvalidArgument, "{}; see `towline{} --help`", unknown ? *unknown : error.what(), used_verb());
  }

  /// Before the verb there are few words: the first that is none of them. CLI11 only misses its subcommand.
  std::optional<std::string> unknown_word(const std::vector<std::string>& typed) const {
    if (!used_verb().empty()) {
      const std::optional<std::string> flag = unknown_flag(typed);
      return flag ? std::optional("unknown flag " + *flag) : std::nullopt;
    }
    std::vector<std::string_view> verbs;
    for (const auto& [subcommand, verb] : verbs_) verbs.push_back(verb->name);
    for (const std::string& word : typed) {
      if (word.starts_with("-")) continue;
      const auto near = nearest(word, verbs);
      return fmt::format("unknown verb '{}'{}", word, near ? fmt::format("; did you mean '{}'?", *near) : "");
    }
    return typed.empty() ? std::nullopt : std::optional("a verb is required before " + typed.front());
  }

  /// A switch is there or not. CLI11 takes `--json=5` for five times.
  Result<void> check_switches(const std::vector<std::string>& typed) const {
    for (const std::string& word : typed) {
      if (word == "--") break;
      const size_t equals = word.find('=');
      if (!word.starts_with("--") || equals == std::string::npos) continue;
      const std::string flag = word.substr(0, equals);
      if (is_switch(app_, flag) || std::any_of(verbs_.begin(), verbs_.end(), [&](const auto& entry) {
            return entry.first->parsed() && is_switch(*entry.first, flag);
          }))
        return fail(Code::kInvalidArgument, "{} takes no value; see `towline{} --help`", flag, used_verb());
    }
    return {};
  }

  static bool is_switch(const CLI::App& app, const std::string& flag) {
    const CLI::Option* option = app.get_option_no_throw(flag);
    return option != nullptr && option->get_items_expected_max() == 0;
  }

  /// The first flag that the verb does not have. CLI11 would complain of its value first, as a positional too many.
  std::optional<std::string> unknown_flag(const std::vector<std::string>& typed) const {
    for (const auto& [subcommand, verb] : verbs_) {
      if (!subcommand->parsed()) continue;
      for (const std::string& word : typed) {
        const std::string flag = word.substr(0, word.find('='));
        if (word == "--") break;
        if (flag.rfind("--", 0) == 0 && subcommand->get_option_no_throw(flag) == nullptr) return flag;
      }
    }
    return std::nullopt;
  }

  std::string used_verb() const {
    for (const auto& [subcommand, verb] : verbs_)
      if (subcommand->parsed()) return " " + std::string(verb->name);
    return "";
  }

  void add_verb(const VerbSpec& verb) {
    CLI::App* subcommand = app_.add_subcommand(std::string(verb.name), std::string(verb.help));
    verbs_.emplace_back(subcommand, &verb);
    for (const PositionalSpec& positional : verb.positionals) {
      CLI::Option* option =
          subcommand->add_option(std::string(positional.name), store(texts_), std::string(positional.help));
      option->required(positional.required)->type_name("");
    }
    for (const FlagSpec& flag : verb.flags) add_flag(*subcommand, "--" + std::string(flag.name), flag);
    for (const std::string_view name : verb.settings) {
      const OptionSpec& spec = setting_spec(name);
      add_flag(*subcommand, "--" + flag_of(name), {spec.name, "VALUE", spec.help});
    }
    add_common(*subcommand);
  }

  void add_flag(CLI::App& subcommand, const std::string& name, const FlagSpec& flag) {
    if (flag.placeholder.empty()) {
      subcommand.add_flag(name)->description(std::string(flag.help));
      return;
    }
    CLI::Option* option = flag.repeatable ? subcommand.add_option(name, store(lists_), std::string(flag.help))
                                          : subcommand.add_option(name, store(texts_), std::string(flag.help));
    option->type_name(std::string(flag.placeholder))->allow_extra_args(false);
    if (!flag.repeatable) option->take_last();
  }

  void add_common(CLI::App& subcommand) {
    subcommand.add_flag("--json")->description("print one JSON document");
    for (const std::string_view name : {"config", "log_level", "log_format"})
      add_flag(subcommand, "--" + flag_of(name), {name, "VALUE", setting_spec(name).help});
    subcommand.add_flag("-v")->description("more log lines");
    subcommand.add_flag("-q")->description("fewer log lines");
  }

  /// Somewhere for CLI11 to put a value; what it found is read back through results().
  template <typename T>
  static T& store(std::deque<T>& values) {
    return values.emplace_back();
  }

  Result<void> gather(const CLI::App& subcommand, const VerbSpec& verb) {
    command_.verb = &verb;
    command_.json = subcommand.count("--json") > 0;
    command_.verbosity = static_cast<int>(subcommand.count("-v")) - static_cast<int>(subcommand.count("-q"));
    for (const PositionalSpec& positional : verb.positionals)
      TOWLINE_TRY(take(subcommand, std::string(positional.name),
                       {.name = positional.name,
                        .kind = positional.choices.empty() ? OptionKind::kText : OptionKind::kChoice,
                        .choices = positional.choices}));
    for (const FlagSpec& flag : verb.flags) {
      const std::string name = "--" + std::string(flag.name);
      if (flag.placeholder.empty() && subcommand.count(name) > 0) command_.arguments.add(std::string(flag.name), "");
      if (!flag.placeholder.empty())
        TOWLINE_TRY(
            take(subcommand, name, {.name = flag.name, .kind = flag.kind, .least = flag.least, .most = flag.most}));
    }
    for (const std::string_view name : verb.settings) take_setting(subcommand, name);
    for (const std::string_view name : {"config", "log_level", "log_format"}) take_setting(subcommand, name);
    return {};
  }

  /// Takes the values of one option, each checked against what `spec` says it is.
  Result<void> take(const CLI::App& subcommand, const std::string& option, const OptionSpec& spec) {
    for (const std::string& value : subcommand.get_option(option)->results()) {
      TOWLINE_TRY(check_option(spec, value));
      command_.arguments.add(std::string(spec.name), value);
    }
    return {};
  }

  void take_setting(const CLI::App& subcommand, std::string_view name) {
    const auto results = subcommand.get_option("--" + flag_of(name))->results();
    if (!results.empty()) command_.settings[std::string(name)] = results.back();
  }

  CLI::App app_;
  std::vector<std::pair<CLI::App*, const VerbSpec*>> verbs_;
  std::deque<std::string> texts_;
  std::deque<std::vector<std::string>> lists_;
  Command command_;
};

}  // namespace

bool wants_json(int argc, const char* const* argv) {
  return std::any_of(argv, argv + argc, [](std::string_view word) { return word == "--json"; });
}

Result<Command> parse_command_line(std::span<const VerbSpec* const> verbs, int argc, const char* const* argv) {
  return Parser(verbs).parse(argc, argv);
}

}  // namespace towline::cli
