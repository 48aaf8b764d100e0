#include "refit_worker.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <functional>
#include <iostream>

#include "refit_scenario.h"
#include "towline/reshard/geometry.h"
#include "towline/reshard/publication.h"
#include "towline/reshard/publisher.h"
#include "towline/reshard/receiver.h"
#include "towline/transfer/serving.h"

namespace towline::cli {
namespace {

using reshard::CopyGeometry;
using reshard::ReadRule;
using reshard::SourceTable;

constexpr uint64_t kAlignment = 256;

/// `step 7`; nothing where it is none.
std::optional<uint64_t> step_of(std::string_view line) {
  constexpr std::string_view kWord = "step ";
  if (!line.starts_with(kWord)) return std::nullopt;
  uint64_t step = 0;
  const char* const end = line.data() + line.size();
  const auto parsed = std::from_chars(line.data() + kWord.size(), end, step);
  return parsed.ec == std::errc() && parsed.ptr == end ? std::optional(step) : std::nullopt;
}

/// Answers each command with one line. What a command failed of is an answer too: the next one may do better.
Result<void> serve_commands(const std::function<Result<std::string>(uint64_t step)>& step) {
  std::string line;
  while (std::getline(std::cin, line)) {
    const std::optional<uint64_t> wanted = step_of(line);
    if (!wanted) return fail(Code::kInvalidArgument, "command '{}': expected `step N`", line);
    Result<std::string> answer = step(*wanted);
    std::string text = answer.has_value() ? "done " + *answer : "failed " + answer.error().message;
    std::replace(text.begin(), text.end(), '\n', ' ');
    TOWLINE_TRY(print_text(text + "\n"));
  }
  return {};
}

/// The bytes of a whole tensor in the checkpoint's files.
Result<const std::byte*> file_bytes(const loader::CheckpointViews& views, const std::string& name) {
  const std::optional<size_t> index = views.find(name);
  if (!index) return fail(Code::kNotFound, "tensor '{}': the checkpoint has none of this name", name);
  return views[*index].slice.host_view();
}

/// From the whole tensor to a part of it that lies row-major.
Result<void> cut_from_file(const loader::CheckpointViews& views, const reshard::SourceTensor& tensor,
                           const tensor::Box& box, std::byte* to) {
  const std::byte* const from = TOWLINE_TRY(file_bytes(views, tensor.name));
  const CopyGeometry geometry{box, 0, reshard::row_major_strides(box.extent)};
  std::vector<ReadRule> rules;
  append_rules(geometry, tensor::Box::whole(tensor.shape), tensor.element_bytes, reshard::Coalescing::kFull, {}, rules);
  for (const ReadRule& rule : rules)
    for_each_run(
        rule, [&](const reshard::Run& run) { std::memcpy(to + run.target_byte, from + run.source_byte, rule.bytes); });
  return {};
}

/// How one engine rank reads. Whoever plans it comes to the same: the reader, and each trainer rank that packs for it.
Result<reshard::RefitPlan> plan_reader(App& app, const Arguments& arguments, const CheckpointScenario& checkpoint,
                                       const transport::Transport& transport, Rank reader) {
  const auto& [model, trainer, engine] = checkpoint.scenario;
  SourceTable sources = TOWLINE_TRY(reshard::trainer_sources(model.config, model.tensors, trainer));
  reshard::EngineShard shard = TOWLINE_TRY(reshard::engine_shard(model.config, model.tensors, engine, reader));
  reshard::PlannerOptions options = narrowed(TOWLINE_TRY(planner_options_of(app, arguments)), transport.caps());
  options.reader = reader;
  return make_refit_plan(std::move(shard.capture), std::move(sources), std::move(shard.parameters), options);
}

/// A rank of the trainer.
class Trainer {
 public:
  static Result<std::unique_ptr<Trainer>> open(App& app, const Arguments& arguments,
                                               const CheckpointScenario& checkpoint, uint32_t rank) {
    std::unique_ptr<Trainer> trainer(new Trainer(app, checkpoint.scenario.model.config.name, rank));
    const reshard::Scenario& scenario = checkpoint.scenario;
    if (rank >= world_size(scenario.trainer))
      return fail(Code::kInvalidArgument, "rank {} of a trainer of {} ranks ({})", rank, world_size(scenario.trainer),
                  to_string(scenario.trainer));
    const SourceTable sources =
        TOWLINE_TRY(reshard::trainer_sources(scenario.model.config, scenario.model.tensors, scenario.trainer));
    trainer->session_ = TOWLINE_TRY(app.open_session());
    trainer->metadata_ = TOWLINE_TRY(app.connect());
    std::vector<reshard::PackJob> jobs;
    for (uint32_t reader = 0; reader < world_size(scenario.engine); ++reader)
      for (reshard::PackJob& job :
           TOWLINE_TRY(plan_reader(app, arguments, checkpoint, trainer->session_->transport(), Rank(reader))).packs)
        if (job.session == rank) jobs.push_back(std::move(job));
    TOWLINE_TRY(trainer->hold(sources, checkpoint.views, std::move(jobs)));
    return trainer;
  }

  /// The weights of the step, in place; whoever reads them asks for the step by its number.
  Result<std::string> step(uint64_t step) {
    serving_.reset();
    const std::byte change = step_key(step_) ^ step_key(step);
    std::byte* const bytes = slab_->host_view();
    for (size_t i = 0; i < slab_->bytes().size(); ++i) bytes[i] ^= change;
    step_ = step;
    TOWLINE_TRY(publisher_->stage(app_.deadline()));
    transfer::ServingOptions options;
    options.identity.mx_version = TOWLINE_VERSION;
    options.identity.model_name = model_;
    options.identity.extra_parameters[kStepParameter] = std::to_string(step);
    options.rank = Rank(rank_);
    options.worker_id = fmt::format("trainer-{}", rank_);
    options.publisher.interval = app_.options().duration("heartbeat_interval");
    serving_ = TOWLINE_TRY(transfer::Serving::start(*session_, *metadata_, std::move(options), app_.deadline()));
    return fmt::format("{}", slab_->bytes());
  }

 private:
  Trainer(App& app, const std::string& model, uint32_t rank)
      : app_(app), model_(refit_model_name(model)), rank_(rank) {}

  Result<void> hold(const SourceTable& sources, const loader::CheckpointViews& views,
                    std::vector<reshard::PackJob> jobs) {
    const std::vector<reshard::HeldShard> shards = shards_of(sources, rank_);
    std::vector<uint64_t> offsets;
    uint64_t bytes = 0;
    for (const reshard::HeldShard& shard : shards) {
      offsets.push_back(bytes);
      bytes += (shard.bytes + kAlignment - 1) / kAlignment * kAlignment;
    }
    constexpr device::AllocateOptions kServed{.shareable = true, .pinned = true};
    slab_ = TOWLINE_TRY(session_->device().allocate(Bytes(std::max<uint64_t>(bytes, 1)), kServed));
    std::vector<transfer::LocalTensor> tensors;
    reshard::Publisher::ShardMemory memory;
    for (size_t i = 0; i < shards.size(); ++i) {
      const reshard::SourceTensor& tensor = sources.tensors()[shards[i].tensor];
      TOWLINE_TRY(cut_from_file(views, tensor, shards[i].box, slab_->host_view() + offsets[i]));
      const device::RegionSlice slice{slab_, Bytes(offsets[i]), Bytes(shards[i].bytes)};
      tensors.push_back(transfer::describe(tensor.name, tensor.dtype, slice, shards[i].box.extent));
      memory[shards[i].shard] = slice;
    }
    publisher_ = TOWLINE_TRY(
        reshard::Publisher::open({app_.clock(), session_->device()}, std::move(memory), std::move(jobs), kServed));
    for (transfer::LocalTensor& arena : publisher_->tensors()) tensors.push_back(std::move(arena));
    transfer::RegisterOptions options;
    options.pool = true;  // one key: the slab is nothing but these, and one an arena
    TOWLINE_TRY(
        session_->manager().register_tensors(TOWLINE_TRY(transfer::Catalogue::build(std::move(tensors))), options));
    return {};
  }

  App& app_;
  const std::string model_;
  const uint32_t rank_;
  std::unique_ptr<transfer::Session> session_;
  std::unique_ptr<control::Metadata> metadata_;
  device::MemoryRegionPtr slab_;
  std::unique_ptr<reshard::Publisher> publisher_;
  uint64_t step_ = 0;
  std::unique_ptr<transfer::Serving> serving_;
};

/// A rank of the engine.
class Reader {
 public:
  static Result<std::unique_ptr<Reader>> open(App& app, const Arguments& arguments,
                                              const CheckpointScenario& checkpoint, uint32_t rank) {
    std::unique_ptr<Reader> reader(new Reader(app, checkpoint));
    reader->session_ = TOWLINE_TRY(app.open_session());
    reader->metadata_ = TOWLINE_TRY(app.connect());
    reader->plan_ = TOWLINE_TRY(plan_reader(app, arguments, checkpoint, reader->session_->transport(), Rank(rank)));
    return reader;
  }

  Result<std::string> step(uint64_t step) {
    const TimePoint start = app_.clock().now();
    TOWLINE_TRY(find_trainers(step));
    const Nanoseconds prepare = app_.clock().now() - start;
    uint64_t compared = 0;
    const auto install = [&](const reshard::ReceiveBuffers& buffers) -> Result<void> {
      compared = TOWLINE_TRY(compare(buffers, step));
      return {};
    };
    Result<reshard::UpdateReport> report = receiver_->update(step, install, app_.deadline());
    if (!report.has_value()) {
      forget();  // the next step begins with fresh peers
      return std::move(report).error();
    }
    const auto seconds = [](Nanoseconds span) { return std::chrono::duration<double>(span).count(); };
    return fmt::format("{} {} {} {} {} {} {} {}", report->bytes, report->reads, report->detoured, compared,
                       seconds(prepare), seconds(report->wire.value_or(Nanoseconds(0))),
                       seconds(report->tail.value_or(Nanoseconds(0))),
                       seconds(report->install.value_or(Nanoseconds(0))));
  }

 private:
  Reader(App& app, const CheckpointScenario& checkpoint) : app_(app), checkpoint_(checkpoint) {}

  /// The records of every trainer rank for this step; plans anew when one has restarted since.
  Result<void> find_trainers(uint64_t step) {
    const control::SourceFilter filter{.status = control::SourceStatus::kReady,
                                       .model_name = refit_model_name(checkpoint_.scenario.model.config.name),
                                       .training_step_min = step};
    std::map<uint32_t, control::SourceRef> by_rank;
    for (const control::SourceRef& ref : TOWLINE_TRY(metadata_->list(filter, app_.deadline())))
      if (ref.training_step == step) by_rank.emplace(ref.rank.value(), ref);
    bool has_changed = receiver_ == nullptr;
    std::vector<control::WorkerEntry> entries;
    SourceTable& sources = plan_.sources;
    for (uint32_t rank = 0; rank < sources.sessions().size(); ++rank) {
      const auto found = by_rank.find(rank);
      if (found == by_rank.end())
        return fail(Code::kNotFound, "trainer rank {} ('{}') has not published step {}", rank, sources.sessions()[rank],
                    step);
      entries.push_back(TOWLINE_TRY(metadata_->get(found->second.source_id, found->second.worker_id, app_.deadline())));
      TOWLINE_TRY(check_stamp(entries.back(), step));
      has_changed = TOWLINE_TRY(bind_session(sources, rank, entries.back().worker.manifest))
      || has_changed;
      has_changed = has_changed || agents_[rank] != entries.back().worker.agent_name;
    }
    if (!has_changed) return {};
    forget();
    return connect(entries);
  }

  /// A record says itself which step it is of: a list may be behind.
  static Result<void> check_stamp(const control::WorkerEntry& entry, uint64_t step) {
    const auto stamp = entry.identity.extra_parameters.find(kStepParameter);
    if (stamp != entry.identity.extra_parameters.end() && stamp->second == std::to_string(step)) return {};
    return fail(Code::kFailedPrecondition, "worker {}: its weights are of step {}, wanted is {}", entry.worker_id,
                stamp == entry.identity.extra_parameters.end() ? "unknown" : stamp->second, step);
  }

  Result<void> connect(const std::vector<control::WorkerEntry>& entries) {
    reshard::SessionPeers peers;
    for (uint32_t rank = 0; rank < entries.size(); ++rank) {
      const Deadline soon = std::min(app_.deadline(), deadline_after(app_.clock(), std::chrono::seconds(10)));
      const transport::PeerId peer =
          TOWLINE_TRY(session_->transport().add_peer(entries[rank].worker.transport_metadata, soon));
      peers_.push_back(peer);
      peers[plan_.sources.sessions()[rank]] = peer;
      agents_[rank] = entries[rank].worker.agent_name;
    }
    reshard::ReceiverOptions options;
    options.window_bytes = app_.options().bytes("window");
    receiver_ = TOWLINE_TRY(reshard::Receiver::prepare(
        {app_.clock(), app_.log(), session_->transport(), session_->device()}, plan_, peers, options));
    return {};
  }

  void forget() {
    for (const transport::PeerId peer : peers_)
      (void)session_->transport().remove_peer(peer, deadline_after(app_.clock(), std::chrono::seconds(5)));
    peers_.clear();
    agents_.clear();
    receiver_.reset();
  }

  /// Every byte of every copy with the file's, by a way of its own: straight from the whole tensor. Returns how many.
  Result<uint64_t> compare(const reshard::ReceiveBuffers& buffers, uint64_t step) const {
    uint64_t compared = 0;
    std::vector<ReadRule> rules;
    for (const reshard::RecordedCopy& copy : plan_.capture.copies) {
      const reshard::SourceTensor& source = *plan_.sources.find(copy.source);
      if (source.dtype != copy.target_dtype) continue;  // cast on its way: its bytes are others
      const std::byte* const file = TOWLINE_TRY(file_bytes(checkpoint_.views, copy.source));
      const std::byte* const found = buffers.at(copy.parameter).memory.host_view();
      const CopyGeometry geometry =
          TOWLINE_TRY(geometry_of(copy.chain, source.shape, copy.target_offset, copy.target_shape, copy.target_stride));
      rules.clear();
      append_rules(geometry, tensor::Box::whole(source.shape), source.element_bytes, reshard::Coalescing::kFull, {},
                   rules);
      for (const ReadRule& rule : rules) {
        if (const std::optional<uint64_t> byte = first_difference(rule, file, found, step_key(step)))
          return fail(Code::kDataLoss, "parameter '{}': byte {} is not what step {} of '{}' has", copy.parameter, *byte,
                      step, copy.source);
        compared += rule.total_bytes();
      }
    }
    return compared;
  }

  static std::optional<uint64_t> first_difference(const ReadRule& rule, const std::byte* file, const std::byte* found,
                                                  std::byte key) {
    std::optional<uint64_t> first;
    for_each_run(rule, [&](const reshard::Run& run) {
      std::byte difference{0};
      for (uint64_t i = 0; i < rule.bytes; ++i)
        difference |= file[run.source_byte + i] ^ found[run.target_byte + i] ^ key;
      if (difference != std::byte{0} && !first) first = run.target_byte;
    });
    return first;
  }

  App& app_;
  const CheckpointScenario& checkpoint_;
  reshard::RefitPlan plan_;
  std::unique_ptr<transfer::Session> session_;
  std::unique_ptr<control::Metadata> metadata_;
  std::map<uint32_t, std::string> agents_;
  std::vector<transport::PeerId> peers_;
  std::unique_ptr<reshard::Receiver> receiver_;
};

}  // namespace

std::byte step_key(uint64_t step) { return static_cast<std::byte>(step * 37 & 0xFF); }

std::string refit_model_name(const std::string& model) { return "refit/" + model; }

Result<void> run_refit_trainer(App& app, const Arguments& arguments) {
  const CheckpointScenario checkpoint = TOWLINE_TRY(open_checkpoint_scenario(app, arguments));
  const auto trainer =
      TOWLINE_TRY(Trainer::open(app, arguments, checkpoint, static_cast<uint32_t>(arguments.count("rank", 0))));
  return serve_commands([&](uint64_t step) { return trainer->step(step); });
}

Result<void> run_refit_reader(App& app, const Arguments& arguments) {
  const CheckpointScenario checkpoint = TOWLINE_TRY(open_checkpoint_scenario(app, arguments));
  const auto reader =
      TOWLINE_TRY(Reader::open(app, arguments, checkpoint, static_cast<uint32_t>(arguments.count("rank", 0))));
  return serve_commands([&](uint64_t step) { return reader->step(step); });
}

}  // namespace towline::cli
