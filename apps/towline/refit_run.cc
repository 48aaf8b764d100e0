#include "refit_run.h"

#include <chrono>
#include <sstream>

#include "child_process.h"
#include "console.h"
#include "refit_scenario.h"
#include "towline/control/server.h"
#include "towline/control/service.h"
#include "towline/control/store.h"

namespace towline::cli {
namespace {

constexpr uint64_t kStepsDefault = 3;
constexpr uint64_t kFaultStep = 1;  ///< at which a process is killed

int64_t wall_ms() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(since).count();
}

/// What one engine rank did at one step.
struct Row {
  uint64_t step = 0;
  uint32_t rank = 0;
  std::string error;  ///< empty: it succeeded
  uint64_t bytes = 0, reads = 0, detoured = 0, compared = 0;
  double prepare_s = 0, wire_s = 0, tail_s = 0, install_s = 0;
  double accounted_s() const { return prepare_s + wire_s + tail_s + install_s; }
};

Result<Row> row_of(uint64_t step, uint32_t rank, const std::string& answer) {
  Row row{.step = step, .rank = rank, .error = {}};
  if (answer.starts_with("failed ")) return row.error = answer.substr(7), row;
  std::istringstream fields(answer.substr(std::min<size_t>(5, answer.size())));
  fields >> row.bytes >> row.reads >> row.detoured >> row.compared >> row.prepare_s >> row.wire_s >> row.tail_s >>
      row.install_s;
  if (fields) return row;
  return fail(Code::kInternal, "engine rank {}: answered '{}'", rank, answer);
}

/// Trainer ranks and engine ranks as processes, and the metadata server that they find each other by.
class Rehearsal {
 public:
  static Result<std::unique_ptr<Rehearsal>> start(App& app, const Arguments& arguments,
                                                  const reshard::Scenario& scenario) {
    std::unique_ptr<Rehearsal> rehearsal(new Rehearsal(app, arguments));
    rehearsal->store_ = TOWLINE_TRY(control::open_store("memory:", {app.clock(), app.log()}));
    rehearsal->service_ = std::make_unique<control::MetadataService>(*rehearsal->store_, &wall_ms, app.log());
    rehearsal->server_ = TOWLINE_TRY(control::MetadataServer::start({}, *rehearsal->service_, app.clock(), app.log()));
    for (uint32_t rank = 0; rank < world_size(scenario.trainer); ++rank)
      rehearsal->trainers_.push_back(TOWLINE_TRY(rehearsal->spawn("trainer", rank)));
    for (uint32_t rank = 0; rank < world_size(scenario.engine); ++rank)
      rehearsal->readers_.push_back(TOWLINE_TRY(rehearsal->spawn("reader", rank)));
    return rehearsal;
  }

  /// All trainer ranks publish the step.
  Result<void> train(uint64_t step) {
    for (ChildProcess& trainer : trainers_) TOWLINE_TRY(trainer.send(fmt::format("step {}", step)));
    for (ChildProcess& trainer : trainers_) TOWLINE_TRY(check_trained(trainer, step));
    return {};
  }

  /// All engine ranks read the step, side by side; `skip` does not.
  Result<std::vector<Row>> read(uint64_t step, std::optional<uint32_t> skip = std::nullopt) {
    std::vector<Row> rows;
    for (uint32_t rank = 0; rank < readers_.size(); ++rank)
      if (rank != skip) TOWLINE_TRY(readers_[rank].send(fmt::format("step {}", step)));
    for (uint32_t rank = 0; rank < readers_.size(); ++rank)
      if (rank != skip)
        rows.push_back(
            TOWLINE_TRY(row_of(step, rank, TOWLINE_TRY(readers_[rank].read_line(app_.clock(), app_.deadline())))));
    return rows;
  }

  /// The last trainer rank dies after it has published, and comes back with other memory.
  Result<std::vector<Row>> read_without_a_trainer(uint64_t step) {
    trainers_.back().kill();
    std::vector<Row> rows = TOWLINE_TRY(read(step));
    const auto rank = static_cast<uint32_t>(trainers_.size() - 1);
    trainers_.back() = TOWLINE_TRY(spawn("trainer", rank));
    TOWLINE_TRY(trainers_.back().send(fmt::format("step {}", step)));
    TOWLINE_TRY(check_trained(trainers_.back(), step));
    return rows;
  }

  /// The last engine rank dies while it is asked to read; the others must not notice. It comes back.
  Result<std::vector<Row>> read_without_a_reader(uint64_t step) {
    const auto rank = static_cast<uint32_t>(readers_.size() - 1);
    TOWLINE_TRY(readers_.back().send(fmt::format("step {}", step)));
    readers_.back().kill();
    std::vector<Row> rows = TOWLINE_TRY(read(step, rank));
    rows.push_back({.step = step, .rank = rank, .error = "killed"});
    readers_.back() = TOWLINE_TRY(spawn("reader", rank));
    return rows;
  }

 private:
  Rehearsal(App& app, const Arguments& arguments) : app_(app), arguments_(arguments) {}

  Result<ChildProcess> spawn(const std::string& role, uint32_t rank) {
    std::vector<std::string> command = {"/proc/self/exe", "refit",           role, "--rank", std::to_string(rank),
                                        "--server",       server_->address()};
    for (const char* const flag : {"checkpoint", "trainer", "engine", "head-dim", "reads", "staging"})
      if (arguments_.has(flag)) command.insert(command.end(), {std::string("--") + flag, arguments_.get(flag)});
    for (const char* const setting : {"transport", "deadline", "window"})
      command.insert(command.end(), {std::string("--") + setting, app_.options().text(setting)});
    // What each of them has registered would drown the table.
    const std::string level = app_.options().text("log_level");
    command.insert(command.end(), {"--log-level", level == "info" ? "warning" : level});
    return ChildProcess::start(fmt::format("{} {}", role, rank), command);
  }

  Result<void> check_trained(ChildProcess& trainer, uint64_t step) {
    const std::string answer = TOWLINE_TRY(trainer.read_line(app_.clock(), app_.deadline()));
    if (answer.starts_with("done ")) return {};
    return fail(Code::kAborted, "{}: step {}: {}", trainer.name(), step, answer);
  }

  App& app_;
  const Arguments& arguments_;
  std::unique_ptr<control::Store> store_;
  std::unique_ptr<control::MetadataService> service_;
  std::unique_ptr<control::MetadataServer> server_;
  std::vector<ChildProcess> trainers_, readers_;
};

/// Everything that is asked of the rehearsal; what is left of it goes by the rows.
Result<std::vector<Row>> rehearse(Rehearsal& rehearsal, const Arguments& arguments) {
  std::vector<Row> rows;
  const auto add = [&rows](std::vector<Row> more) { rows.insert(rows.end(), more.begin(), more.end()); };
  for (uint64_t step = 0; step < arguments.count("steps", kStepsDefault); ++step) {
    TOWLINE_TRY(rehearsal.train(step));
    if (step == kFaultStep && arguments.has("kill-source")) add(TOWLINE_TRY(rehearsal.read_without_a_trainer(step)));
    if (step == kFaultStep && arguments.has("kill-reader")) add(TOWLINE_TRY(rehearsal.read_without_a_reader(step)));
    add(TOWLINE_TRY(rehearsal.read(step)));
  }
  return rows;
}

/// The slowest rank that succeeded at the row's step.
bool is_slowest(const Row& row, const std::vector<Row>& rows) {
  return row.error.empty() && std::all_of(rows.begin(), rows.end(), [&](const Row& other) {
           return other.step != row.step || !other.error.empty() || other.accounted_s() <= row.accounted_s();
         });
}

Document document_of(const Row& row, const std::vector<Row>& rows) {
  Document document;
  document.set("step", row.step).set("rank", row.rank);
  document.set("error", row.error.empty() ? std::nullopt : std::optional(row.error));
  document.set("bytes", row.bytes).set("read_count", row.reads).set("detoured_bytes", row.detoured);
  document.set("compared_bytes", row.compared).set("prepare_seconds", row.prepare_s).set("wire_seconds", row.wire_s);
  document.set("tail_seconds", row.tail_s).set("compare_seconds", row.install_s);
  return document.set("slowest", is_slowest(row, rows));
}

std::string text_of(const std::vector<Row>& rows) {
  using Align = Table::Align;
  Table table({{"step", Align::kRight},
               {"rank", Align::kRight},
               {"bytes", Align::kRight},
               {"reads", Align::kRight},
               {"prepare", Align::kRight},
               {"wire", Align::kRight},
               {"rate", Align::kRight},
               {"tail", Align::kRight},
               {"compare", Align::kRight},
               {"verified"},
               {""}});
  const auto span = [](double s) {
    return seconds(std::chrono::duration_cast<Nanoseconds>(std::chrono::duration<double>(s)));
  };
  for (const Row& row : rows) {
    if (!row.error.empty()) {
      table.add(
          {std::to_string(row.step), std::to_string(row.rank), "", "", "", "", "", "", "", "not installed", row.error});
      continue;
    }
    table.add({std::to_string(row.step), std::to_string(row.rank), to_string(Bytes(row.bytes)),
               std::to_string(row.reads), span(row.prepare_s), span(row.wire_s),
               gigabytes_per_s(row.wire_s > 0 ? static_cast<double>(row.bytes) / row.wire_s : 0), span(row.tail_s),
               span(row.install_s), "every byte", is_slowest(row, rows) ? "slowest" : ""});
  }
  return table.text();
}

}  // namespace

Result<void> run_refit_run(App& app, const Arguments& arguments) {
  if (!arguments.has("checkpoint"))
    return app.misuse(fail(Code::kInvalidArgument, "refit run: give --checkpoint, --trainer and --engine"));
  const bool needs_fault_step = arguments.has("kill-source") || arguments.has("kill-reader");
  if (needs_fault_step && arguments.count("steps", kStepsDefault) <= kFaultStep)
    return app.misuse(
        fail(Code::kInvalidArgument, "refit run: a process is killed at step {}; give more --steps", kFaultStep));
  const CheckpointScenario checkpoint = TOWLINE_TRY(open_checkpoint_scenario(app, arguments));
  const auto rehearsal = TOWLINE_TRY(Rehearsal::start(app, arguments, checkpoint.scenario));
  const std::vector<Row> rows = TOWLINE_TRY(rehearse(*rehearsal, arguments));
  std::vector<Document> documents;
  for (const Row& row : rows) documents.push_back(document_of(row, rows));
  Document document("towline.refit.run/1");
  document.set("model", checkpoint.scenario.model.config.name).set("trainer", to_string(checkpoint.scenario.trainer));
  document.set("engine", to_string(checkpoint.scenario.engine)).set("rows", documents);
  TOWLINE_TRY(app.print(document, text_of(rows)));
  // A fault may fail a rank once; the read of the whole step that follows it may not.
  const uint64_t ranks = world_size(checkpoint.scenario.engine);
  for (size_t i = 0; i < rows.size(); ++i) {
    const bool is_faulted =
        needs_fault_step && rows[i].step == kFaultStep && i + ranks < rows.size() && rows[i + ranks].step == kFaultStep;
    if (!rows[i].error.empty() && !is_faulted)
      return fail(Code::kAborted, "engine rank {}, step {}: {}", rows[i].rank, rows[i].step, rows[i].error);
  }
  return {};
}

}  // namespace towline::cli
