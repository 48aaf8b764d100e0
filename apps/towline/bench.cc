#include "app.h"
#include "bench_load.h"
#include "bench_memcpy.h"
#include "bench_registration.h"
#include "bench_transfer.h"
#include "verbs.h"

namespace towline::cli {
namespace {

constexpr PositionalSpec kPositionals[] = {
    {.name = "what", .help = "memcpy, transfer, registration or load", .choices = "memcpy|transfer|registration|load"}};
constexpr FlagSpec kFlags[] = {
    {.name = "bytes",
     .placeholder = "SIZE",
     .help = "how much each round moves (default: 1GiB)",
     .kind = OptionKind::kBytes},
    {.name = "repeat", .placeholder = "N", .help = "interleaved rounds (default: 7)", .kind = OptionKind::kCount},
    {"folder", "PATH", "for load: on the disk to measure (default: /var/tmp)"},
    {"markdown", "", "print the table as docs/benchmarks.md holds it"},
};
constexpr std::string_view kSettings[] = {"transport"};

struct BenchFlags {
  Bytes bytes = GiB(1);
  size_t rounds = 7;
};

Result<BenchFlags> bench_flags(const Arguments& arguments) {
  BenchFlags flags{.bytes = arguments.bytes("bytes", GiB(1)), .rounds = arguments.count("repeat", 7)};
  if (flags.bytes < MiB(1)) return fail(Code::kInvalidArgument, "--bytes: a bench moves 1MiB or more");
  if (flags.rounds == 0 || flags.rounds > 1000)
    return fail(Code::kInvalidArgument, "--repeat {} is not from 1 to 1000", flags.rounds);
  return flags;
}

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
  if (what == "registration")
    return benchmarks::run_registration_bench({.rounds = flags.rounds, .transport = app.options().text("transport")});
  return benchmarks::run_load_bench(
      {.folder = arguments.find("folder").value_or("/var/tmp"), .bytes = flags.bytes, .rounds = flags.rounds},
      app.log());
}

Result<void> run_bench(App& app, const Arguments& arguments) {
  const BenchFlags flags = TOWLINE_TRY(bench_flags(arguments));
  const std::string what = arguments.get("what");
  const benchmarks::BenchTable bench = TOWLINE_TRY(run_named(app, what, flags, arguments));
  std::vector<Document> rows;
  bool wrong = false;
  for (const benchmarks::BenchRow& row : bench.rows) {
    rows.push_back(document_of(row));
    wrong = wrong || row.verified == false;
  }
  app.print(Document("towline.bench/1")
                .set("bench", what)
                .set("bytes", flags.bytes)
                .set("repeat", uint64_t{flags.rounds})
                .set("conditions", bench.conditions)
                .set("rows", rows),
            arguments.has("markdown") ? benchmarks::to_markdown(bench) : text_of(bench));
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
