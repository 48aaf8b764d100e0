#pragma once

#include <memory>
#include <optional>
#include <string>

#include "app.h"
#include "arguments.h"
#include "towline/loader/safetensors_loader.h"
#include "towline/transfer/load_timer.h"
#include "towline/transfer/peer_load.h"
#include "towline/transfer/serving.h"

namespace towline::cli {

/// How a replica came by its weights: what `load`, `serve` and `pull` print.
struct LoadSummary {
  std::string path;  ///< in words: `disk, direct (io_uring)`, `ucx`
  std::optional<std::string> from_worker_id;
  Bytes bytes;
  size_t tensors = 0;
  size_t verified = 0;
  bool verification = false;  ///< whether digests were compared at all
  Nanoseconds transfer{};     ///< in which bytes moved and were checked
  Nanoseconds verify{};       ///< the part of it that checking did not hide
};

/// The flags of a verb that serves, read and checked.
struct ReplicaFlags {
  std::string model;
  std::string worker_id;
  Rank rank;
};
/// What cannot be a name or an id is misuse, before anything is loaded or sent.
Result<ReplicaFlags> replica_flags(App& app, const Arguments& arguments, const std::string& model);
/// Of `--rank`, for every verb that has it.
inline constexpr std::string_view kRankMax = "4294967295";

/// `folder/model.safetensors` -> `model`, `folder/` -> `folder`.
std::string model_name_of(const std::string& checkpoint);

/// Options of a load or pull as the settings say.
Result<loader::LoadOptions> load_options(App& app, Deadline deadline);
transfer::ReceiveOptions receive_options(App& app, Deadline deadline, ProgressBar& bar);

Result<LoadSummary> load_from_disk(App& app, transfer::Session& session, const std::string& model,
                                   const std::string& checkpoint, Deadline deadline);
LoadSummary summary_of(const loader::LoadReport& report);
LoadSummary summary_of(const transfer::PeerLoad& load, std::string_view transport);

/// The document and the text of a replica that is loaded; `serving` null: it does not serve.
Document replica_document(std::string_view schema, App& app, const ReplicaFlags& flags, const LoadSummary& summary,
                          const transfer::Serving* serving, Nanoseconds elapsed);
std::string replica_text(const ReplicaFlags& flags, const LoadSummary& summary, const transfer::Serving* serving,
                         Nanoseconds elapsed);

/// A load that is done, and what is left to be said of it.
struct LoadedReplica {
  const ReplicaFlags& flags;
  const LoadSummary& summary;
  std::string_view schema;
  TimePoint start;
  Deadline deadline;
  transfer::LoadTimer& timer;
  ReadyFile* ready_file;  ///< null: none
};

/// Publishes, which ends the load that the timer measures, says so, and serves until SIGINT or SIGTERM. Errors: those
/// of publishing; kAlreadyExists - another process has taken the worker id since.
Result<void> serve_until_stopped(App& app, transfer::Session& session, control::Metadata& metadata,
                                 const LoadedReplica& replica);

}  // namespace towline::cli
