#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "app.h"
#include "bench_load.h"
#include "bench_memcpy.h"
#include "bench_plan.h"
#include "bench_registration.h"
#include "bench_transfer.h"
#include "verbs.h"

namespace towline::cli {
namespace {

constexpr PositionalSpec kPositionals[] = {{.name = "what",
                                            .help = "memcpy, transfer, registration, load or plan",
                                            .choices = "memcpy|transfer|registration|load|plan"}};
constexpr FlagSpec kFlags[] = {
    {.name = "bytes",
     .placeholder = "SIZE",
     .help = "how much each round moves (default: 1GiB)",
     .kind = OptionKind::kBytes,
     .least = "1MiB"},
    {.name = "repeat",
     .placeholder = "N",
     .help = "interleaved rounds (default: 7)",
     .kind = OptionKind::kCount,
     .least = "1",
     .most = "1000"},
    {"folder", "PATH", "for load: on the disk to measure (default: /var/tmp)"},
    {"markdown", "", "print the table as docs/benchmarks.md holds it"},
};
constexpr std::string_view kSettings[] = {"transport"};

struct BenchFlags {
  Bytes bytes = GiB(1);
  size_t rounds = 7;
};

BenchFlags bench_flags(const Arguments& arguments) {
  return {.bytes = arguments.bytes("bytes", GiB(1)), .rounds = arguments.count("repeat", 7)};
}

/// A folder of this run's own for the files of `bench load`, gone with it.
class Workplace {
 public:
  static Result<Workplace> make(App& app, const std::string& parent) {
    std::string path = parent + "/towline-bench-XXXXXX";
    if (mkdtemp(path.data()) == nullptr)
      return fail(errno_code(errno), "folder '{}': {}; name another with --folder", parent, errno_text(errno));
    return Workplace(app, std::move(path));
  }
  Workplace(Workplace&& other) noexcept : path_(std::exchange(other.path_, {})), guard_(std::move(other.guard_)) {}
  Workplace& operator=(Workplace&&) = delete;
  ~Workplace() {
    if (!path_.empty()) remove(path_);
  }
  const std::string& path() const { return path_; }

 private:
  Workplace(App& app, std::string path)
      : path_(std::move(path)), guard_(app.stop().guard([path = path_] { remove(path); })) {}
  static void remove(const std::string& path) {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  std::string path_;
  Stop::Guard guard_;
};

Document document_of(const benchmarks::BenchRow& row) {
  Document document;
  document.set("name", row.name).set("unit", row.unit).set("value", row.value.median);
  document.set("value_min", row.value.least).set("value_max", row.value.greatest);
  document.set("ceiling", row.ceiling.empty() ? std::nullopt : std::optional(row.ceiling));
  document.set("ceiling_value", row.ceiling_value ? std::optional(row.ceiling_value->median) : std::nullopt);
  document.set("ratio", row.ratio ? std::optional(row.ratio->median) : std::nullopt);
  document.set("ratio_min", row.ratio ? std::optional(row.ratio->least) : std::nullopt);
  document.set("ratio_max", row.ratio ? std::optional(row.ratio->greatest) : std::nullopt);
  document.set("floor", row.floor).set("verified", row.verified).set("note", row.note);
  return document;
}

std::string text_of(const benchmarks::BenchTable& bench) {
  Table table({{"measure"},
               {"median", Table::Align::kRight},
               {"against"},
               {"its median", Table::Align::kRight},
               {"ratio", Table::Align::kRight},
               {"floor", Table::Align::kRight},
               {"bytes compared"},
               {"note"}});
  for (const benchmarks::BenchRow& row : bench.rows)
    table.add({row.name, benchmarks::format_value(row.value.median, row.unit), row.ceiling,
               row.ceiling_value ? benchmarks::format_value(row.ceiling_value->median, row.unit) : "",
               row.ratio ? fmt::format("{:.2f}", row.ratio->median) : "",
               row.floor ? fmt::format("{:.2f}", *row.floor) : "", !row.verified ? "" : (*row.verified ? "yes" : "NO"),
               row.note});
  std::string text = bench.title + "\n";
  for (const std::string& condition : bench.conditions) text += "  " + condition + "\n";
  return text + "\n" + table.text();
}

Result<benchmarks::BenchTable> run_named(App& app, const std::string& what, const BenchFlags& flags,
                                         const Arguments& arguments) {
  if (what == "memcpy") return benchmarks::run_memcpy_bench({.bytes = flags.bytes, .rounds = flags.rounds});
  if (what == "transfer")
    return benchmarks::run_transfer_bench(
        {.bytes = flags.bytes, .rounds = flags.rounds, .transport = app.options().text("transport")}, app.log());
  if (what == "plan") return benchmarks::run_plan_bench({.rounds = flags.rounds});
  if (what == "registration")
    return benchmarks::run_registration_bench({.rounds = flags.rounds, .transport = app.options().text("transport")});
  const Workplace files = TOWLINE_TRY(Workplace::make(app, arguments.find("folder").value_or("/var/tmp")));
  return benchmarks::run_load_bench({.folder = files.path(), .bytes = flags.bytes, .rounds = flags.rounds}, app.log());
}

Result<void> run_bench(App& app, const Arguments& arguments) {
  const BenchFlags flags = bench_flags(arguments);
  const std::string what = arguments.get("what");
  const benchmarks::BenchTable bench = TOWLINE_TRY(run_named(app, what, flags, arguments));
  std::vector<Document> rows;
  bool wrong = false;
  for (const benchmarks::BenchRow& row : bench.rows) {
    rows.push_back(document_of(row));
    wrong = wrong || row.verified == false;
  }
  TOWLINE_TRY(app.print(Document("towline.bench/1")
                            .set("bench", what)
                            .set("bytes", flags.bytes)
                            .set("repeat", uint64_t{flags.rounds})
                            .set("conditions", bench.conditions)
                            .set("rows", rows),
                        arguments.has("markdown") ? benchmarks::to_markdown(bench) : text_of(bench)));
  if (wrong) return fail(Code::kDataLoss, "bench {}: bytes that arrived were not those sent", what);
  return {};
}

}  // namespace

const VerbSpec kBench{.name = "bench",
                      .help = "measure this machine, and how near to its limits we get",
                      .positionals = kPositionals,
                      .flags = kFlags,
                      .settings = kSettings,
                      .run = &run_bench};

}  // namespace towline::cli
