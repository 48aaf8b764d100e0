#include "app.h"
#include "towline/control/store.h"
#include "towline/device/host.h"
#include "towline/loader/checkpoint_views.h"
#include "verbs.h"

namespace towline::cli {
namespace {

constexpr PositionalSpec kPositionals[] = {{"checkpoint", "list the tensors of this checkpoint instead", false}};

/// One back end: its row on the page, and in the document.
struct Row {
  std::string name;
  std::optional<std::string> why;  ///< empty: available
};

void add_rows(Document& document, std::string_view key, std::string_view kind, const std::vector<Row>& rows,
              Table& table) {
  std::vector<Document> list;
  for (const Row& row : rows) {
    table.add({std::string(kind), row.name, row.why ? "unavailable: " + *row.why : "available"});
    Document entry;
    entry.set("name", row.name).set("available", !row.why.has_value()).set("why", row.why);
    list.push_back(std::move(entry));
  }
  document.set(key, list);
}

template <typename Entries, typename Open>
std::vector<Row> rows_of(const Entries& entries, Open open) {
  std::vector<Row> rows;
  for (const auto& entry : entries) {
    const auto opened = open(entry);
    rows.push_back(
        {std::string(entry.name), opened.has_value() ? std::nullopt : std::optional(opened.error().message)});
  }
  return rows;
}

Result<void> print_back_ends(App& app) {
  Document document("towline.info/1");
  document.set("version", TOWLINE_VERSION);
  Table table({{"kind"}, {"name"}, {"state"}});
  add_rows(document, "devices", "device",
           rows_of(device::builtin_devices(),
                   [&](const auto& e) {
                     return e.open({app.clock(), app.log()});
                   }),
           table);
  add_rows(
      document, "transports", "transport",
      rows_of(transport::builtin_transports(),
              [&](const auto& e) { return e.open({.name = "towline-info", .clock = app.clock(), .log = app.log()}); }),
      table);
  add_rows(document, "storages", "storage",
           rows_of(storage::builtin_storages(),
                   [&](const auto& e) {
                     return e.open({app.clock(), app.log()});
                   }),
           table);
  std::vector<Row> stores;
  for (const control::StoreEntry& entry : control::builtin_stores()) {
    const auto probed = entry.open(entry.name == "sqlite" ? ":memory:" : "", {app.clock(), app.log()});
    stores.push_back(
        {std::string(entry.name), probed.has_value() ? std::nullopt : std::optional(probed.error().message)});
  }
  add_rows(document, "stores", "store", stores, table);
  return app.print(document, fmt::format("towline {}\n\n{}", TOWLINE_VERSION, table.text()));
}

Document document_of(const loader::LoadedTensor& tensor) {
  Document row;
  const std::optional<tensor::Dtype> dtype = tensor::dtype_from_text(tensor.desc.dtype);
  row.set("name", tensor.desc.name).set("dtype", dtype ? std::string(tensor::name(*dtype)) : tensor.desc.dtype);
  row.set("shape", std::vector<uint64_t>(*tensor.desc.shape)).set("bytes", tensor.desc.bytes);
  return row;
}

Result<void> print_checkpoint(App& app, const std::string& path) {
  const loader::LoaderStorages storages = TOWLINE_TRY(loader::LoaderStorages::open(app.clock(), app.log()));
  const loader::CheckpointViews views = TOWLINE_TRY(loader::open_views(storages.context(), path, {}));
  Table table({{"tensor"}, {"dtype"}, {"shape"}, {"bytes", Table::Align::kRight}});
  std::vector<Document> rows;
  for (size_t i = 0; i < views.size(); ++i) {
    const loader::LoadedTensor tensor = views[i];
    table.add(
        {tensor.desc.name, tensor.desc.dtype, tensor::to_string(*tensor.desc.shape), to_string(tensor.desc.bytes)});
    rows.push_back(document_of(tensor));
  }
  return app.print(Document("towline.info.checkpoint/1")
                       .set("tensor_count", uint64_t{rows.size()})
                       .set("bytes", views.bytes())
                       .set("tensors", rows),
                   fmt::format("{}{} tensors, {}\n", table.text(), rows.size(), to_string(views.bytes())));
}

Result<void> run_info(App& app, const Arguments& arguments) {
  return arguments.has("checkpoint") ? print_checkpoint(app, arguments.get("checkpoint")) : print_back_ends(app);
}

}  // namespace

const VerbSpec kInfo{.name = "info",
                     .help = "what can be used here and what not, and why; or what a checkpoint holds",
                     .positionals = kPositionals,
                     .flags = {},
                     .settings = {},
                     .run = &run_info};

}  // namespace towline::cli
