#include <map>

#include "app.h"
#include "verbs.h"

namespace towline::cli {
namespace {

constexpr PositionalSpec kPositionals[] = {{"model", "only this model", false}};
constexpr std::string_view kSettings[] = {"server", "rpc_deadline", "deadline"};

using Statuses = std::map<std::pair<std::string, std::string>, control::SourceStatus>;

/// Status of each source: a listing says it only through its filter. Whoever no filter shows is overdue: stale.
Result<Statuses> statuses(App& app, control::Metadata& metadata, const control::SourceFilter& filter) {
  Statuses found;
  for (const control::SourceStatus status :
       {control::SourceStatus::kUnknown, control::SourceStatus::kInitializing, control::SourceStatus::kReady}) {
    control::SourceFilter one = filter;
    one.status = status;
    for (const control::SourceRef& source : TOWLINE_TRY(metadata.list(one, app.deadline())))
      found[{source.source_id, source.worker_id}] = status;
  }
  return found;
}

Result<void> run_ls(App& app, const Arguments& arguments) {
  const auto metadata = TOWLINE_TRY(app.connect());
  const control::SourceFilter filter{.model_name = arguments.find("model")};
  const Statuses known = TOWLINE_TRY(statuses(app, *metadata, filter));
  Table table({{"model"}, {"worker"}, {"source"}, {"rank", Table::Align::kRight}, {"status"}});
  std::vector<Document> rows;
  for (const control::SourceRef& source : TOWLINE_TRY(metadata->list(filter, app.deadline()))) {
    const auto found = known.find({source.source_id, source.worker_id});
    const auto status = control::status_name(found == known.end() ? control::SourceStatus::kStale : found->second);
    table.add({source.model_name, source.worker_id, source.source_id, std::to_string(source.rank.value()),
               std::string(status)});
    Document row;
    row.set("model", source.model_name).set("source_id", source.source_id).set("worker_id", source.worker_id);
    row.set("rank", source.rank.value()).set("status", status).set("accelerator", source.accelerator);
    row.set("updated_at_ms", source.updated_at_ms);
    rows.push_back(std::move(row));
  }
  return app.print(Document("towline.ls/1").set("sources", rows), table.empty() ? "no sources\n" : table.text());
}

}  // namespace

const VerbSpec kLs{.name = "ls",
                   .help = "list who serves what",
                   .positionals = kPositionals,
                   .flags = {},
                   .settings = kSettings,
                   .run = &run_ls};

}  // namespace towline::cli
