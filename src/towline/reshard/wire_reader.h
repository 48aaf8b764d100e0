#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "towline/base/clock.h"
#include "towline/base/log.h"
#include "towline/base/result.h"
#include "towline/reshard/read_program.h"
#include "towline/transfer/batch_runner.h"
#include "towline/transport/transport.h"

namespace towline::reshard {

/// Where a session's bytes are read from. By session name.
using SessionPeers = std::map<std::string, transport::PeerId>;

/// What is posted to one session, prepared once and posted at each step.
struct SessionBatch {
  SessionReads reads;
  std::unique_ptr<transport::Batch> batch;
};
/// To all sessions side by side.
using WireProgram = std::vector<SessionBatch>;

/// What a read came to.
struct WireTotals {
  uint64_t bytes = 0;
  uint64_t reads = 0;     ///< as posted
  uint64_t detoured = 0;  ///< bytes that came from another replica than planned
};

/// Reads a plan's pieces from the sessions that have them, each with a window of its own. A session that fails is lost
/// for good: its peer is removed, and what it has not given yet is read from other replicas. Thread-compatible.
class WireReader {
 public:
  struct Options {
    Bytes window_bytes = MiB(64);  ///< in flight at each session
    Nanoseconds stall_timeout = std::chrono::seconds(20);
    Rank reader;  ///< spreads detours over replicas
  };
  /// All outlive it.
  struct Context {
    Clock& clock;
    LogSink& log;
    transport::Transport& transport;
    const SourceTable& sources;
  };
  /// A piece has landed. An error ends the read.
  using OnLanded = std::function<Result<void>(const transport::Piece& piece)>;

  WireReader(const Context& context, SessionPeers peers, const Options& options);

  /// Errors: kNotFound - a session that is read from has no peer; the transport's.
  Result<WireProgram> prepare(std::span<const PlacedRules> lists);
  /// Returns when every byte has landed. Errors: the transport's, naming how much had landed; kUnavailable - a session
  /// was lost and nobody else has what it held; reads that were given up may still land then (check_quiet()).
  Result<WireTotals> read(const WireProgram& program, const OnLanded& on_landed, Deadline deadline);
  /// Errors: kUnavailable - reads that were given up may still land, into the middle of what is read next.
  Result<void> check_quiet();
  /// By session.
  const std::vector<bool>& lost() const { return lost_; }

 private:
  /// What one session failed of, and what it had not given.
  struct Loss {
    uint32_t session;
    Error error;
    std::vector<transport::Piece> unread;
  };
  Result<SessionBatch> prepare_session(SessionReads reads);
  Result<std::vector<Loss>> read_once(const WireProgram& program, const OnLanded& on_landed, Deadline deadline,
                                      WireTotals& totals);
  Result<std::vector<Loss>> losses_of(const WireProgram& program,
                                      std::span<const std::optional<transfer::RunFailure>> failures,
                                      std::span<const size_t> posts_landed, const WireTotals& totals);
  Result<WireProgram> detour(const std::vector<Loss>& losses);
  Result<void> lose(const Loss& loss);

  Context context_;
  Logger log_;
  SessionPeers peers_;
  const Options options_;
  std::vector<bool> lost_;
  std::vector<Completion> unsettled_;
};

}  // namespace towline::reshard
