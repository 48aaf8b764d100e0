#include "towline/reshard/wire_reader.h"

#include <algorithm>

#include "towline/reshard/detour.h"

namespace towline::reshard {
namespace {

/// How long closing a lost peer may take. Nothing of it can land once it is closed.
constexpr Nanoseconds kCloseLimit = std::chrono::seconds(5);

/// Whether another replica may do better: the session is what failed, not we.
bool is_loss(const transfer::RunFailure& failure) {
  return failure.where != transfer::FailedIn::kDelivery &&
         (failure.error.scope == Scope::kEndpoint || failure.error.code == Code::kUnavailable);
}

}  // namespace

WireReader::WireReader(const Context& context, SessionPeers peers, const Options& options)
    : context_(context),
      log_(context.log, "refit"),
      peers_(std::move(peers)),
      options_(options),
      lost_(context.sources.sessions().size(), false) {}

Result<WireProgram> WireReader::prepare(std::span<const PlacedRules> lists) {
  WireProgram program;
  for (SessionReads& reads : compile_reads(lists, context_.sources, transfer::limits_for(context_.transport.caps())))
    program.push_back(TOWLINE_TRY(prepare_session(std::move(reads))));
  return program;
}

Result<SessionBatch> WireReader::prepare_session(SessionReads reads) {
  const std::string& session = context_.sources.sessions()[reads.session];
  const auto peer = peers_.find(session);
  if (peer == peers_.end())
    return fail(Code::kNotFound, "trainer rank '{}': it is to be read from, and no peer of this name was added",
                session);
  SessionBatch batch{std::move(reads), nullptr};
  batch.batch = TOWLINE_TRY(context_.transport.prepare(peer->second, Direction::kRead, batch.reads.plan.pieces));
  return batch;
}

/// A late write of an earlier read would land in the middle of the next one.
Result<void> WireReader::check_quiet() {
  if (!unsettled_.empty()) context_.transport.progress();
  std::erase_if(unsettled_, [](const Completion& completion) { return completion.settled(); });
  if (unsettled_.empty()) return {};
  return fail(Code::kUnavailable, Scope::kEndpoint,
              "{} reads of an earlier update were given up and may still land; remove the peers that do not answer",
              unsettled_.size());
}

/// Each round loses a session at least, so there are no more of them than sessions.
Result<WireTotals> WireReader::read(const WireProgram& program, const OnLanded& on_landed, Deadline deadline) {
  WireTotals totals;
  std::vector<Loss> losses = TOWLINE_TRY(read_once(program, on_landed, deadline, totals));
  while (!losses.empty()) {
    for (const Loss& loss : losses) TOWLINE_TRY(lose(loss));
    const WireProgram rest = TOWLINE_TRY(detour(losses));
    for (const SessionBatch& batch : rest) totals.detoured += batch.reads.plan.bytes.count();
    losses = TOWLINE_TRY(read_once(rest, on_landed, deadline, totals));
  }
  return totals;
}

Result<std::vector<WireReader::Loss>> WireReader::read_once(const WireProgram& program, const OnLanded& on_landed,
                                                            Deadline deadline, WireTotals& totals) {
  std::vector<std::unique_ptr<transfer::BatchRunner>> runners;
  std::vector<transfer::BatchRunner*> all;
  std::vector<size_t> posts_landed(program.size(), 0);
  for (size_t i = 0; i < program.size(); ++i) {
    const transfer::TransferPlan& plan = program[i].reads.plan;
    const auto landed = [&, i](size_t post) -> Result<void> {
      const auto [first, count] = plan.posts[post].pieces;
      totals.bytes += plan.posts[post].bytes.count();
      totals.reads += count;
      posts_landed[i] = post + 1;
      if (on_landed)
        for (size_t piece = first; piece < first + count; ++piece) TOWLINE_TRY(on_landed(plan.pieces[piece]));
      return {};
    };
    runners.push_back(std::make_unique<transfer::BatchRunner>(
        context_.transport, plan, *program[i].batch,
        transfer::RunOptions{.window_bytes = options_.window_bytes, .deadline = deadline}, landed));
    all.push_back(runners.back().get());
  }
  const auto failures = run_each(context_.clock, context_.transport, all,
                                 {.deadline = deadline, .stall_timeout = options_.stall_timeout});
  return losses_of(program, failures, posts_landed, totals);
}

/// What failed for good is an error, what failed of its session a loss.
Result<std::vector<WireReader::Loss>> WireReader::losses_of(
    const WireProgram& program, std::span<const std::optional<transfer::RunFailure>> failures,
    std::span<const size_t> posts_landed, const WireTotals& totals) {
  std::vector<Loss> losses;
  const Error* fatal = nullptr;
  for (size_t i = 0; i < program.size(); ++i) {
    if (!failures[i]) continue;
    unsettled_.insert(unsettled_.end(), failures[i]->unsettled.begin(), failures[i]->unsettled.end());
    if (!is_loss(*failures[i]) && fatal == nullptr) fatal = &failures[i]->error;
    const transfer::TransferPlan& plan = program[i].reads.plan;
    const bool is_whole = posts_landed[i] == plan.posts.size();
    const size_t first = is_whole ? plan.pieces.size() : plan.posts[posts_landed[i]].pieces.first;
    losses.push_back({program[i].reads.session,
                      failures[i]->error,
                      {plan.pieces.begin() + static_cast<ptrdiff_t>(first), plan.pieces.end()}});
  }
  if (fatal == nullptr) return losses;
  return fail(fatal->code, fatal->scope, "reading from {} trainer ranks: {} ({} bytes had landed)", program.size(),
              fatal->message, totals.bytes);
}

/// Only what can land no more may be read anew from somebody else.
Result<void> WireReader::lose(const Loss& loss) {
  const std::string& session = context_.sources.sessions()[loss.session];
  log_.warning("trainer rank '{}' is lost: {}; what it had not given is read from other replicas", session,
               loss.error.message);
  lost_[loss.session] = true;
  const Result<void> removed =
      context_.transport.remove_peer(peers_.at(session), deadline_after(context_.clock, kCloseLimit));
  if (!removed.has_value()) log_.warning("trainer rank '{}': {}", session, to_string(removed.error()));
  return check_quiet();
}

Result<WireProgram> WireReader::detour(const std::vector<Loss>& losses) {
  Detour detour(context_.sources, lost_, options_.reader);
  std::map<uint32_t, std::vector<transport::Piece>> by_session;
  for (const Loss& loss : losses) {
    auto moved = detour.redirect(loss.session, loss.unread);
    if (!moved.has_value())
      return fail(Code::kUnavailable, Scope::kEndpoint, "{} (it failed with: {})", moved.error().message,
                  loss.error.message);
    for (SessionPieces& pieces : *moved) {
      auto& list = by_session[pieces.session];
      list.insert(list.end(), pieces.pieces.begin(), pieces.pieces.end());
    }
  }
  const transfer::PlanLimits limits = transfer::limits_for(context_.transport.caps());
  WireProgram program;
  for (const auto& [session, pieces] : by_session)
    program.push_back(TOWLINE_TRY(prepare_session({session, transfer::plan_pieces(pieces, limits)})));
  return program;
}

}  // namespace towline::reshard
