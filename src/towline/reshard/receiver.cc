#include "towline/reshard/receiver.h"

#include <algorithm>

#include "towline/reshard/geometry.h"

namespace towline::reshard {
namespace {

constexpr Bytes kAlignment = Bytes(256);  // as transfer/layout.h has it

uint64_t bytes_of(const Parameter& parameter) {
  return tensor::element_count(parameter.shape).value_or(0) * parameter.element_bytes;
}

device::RegionSlice part_of(const device::RegionSlice& whole, uint64_t offset, uint64_t bytes) {
  return {whole.region, whole.offset + Bytes(offset), Bytes(bytes)};
}

/// Enqueues; while the stream's queue is full, waits for it.
Result<void> enqueue(device::Stream& stream, const device::DeviceOp& op, Deadline deadline) {
  for (;;) {
    const Result<Completion> completion = stream.enqueue(op);
    if (completion.has_value()) return {};
    if (completion.error().code != Code::kResourceExhausted) return completion.error();
    TOWLINE_TRY(stream.synchronize(deadline));
  }
}

std::vector<Address> addresses_of(const std::vector<device::RegionSlice>& slices) {
  std::vector<Address> addresses;
  for (const device::RegionSlice& slice : slices) addresses.push_back(slice.address());
  return addresses;
}

ReceiverOptions narrowed(ReceiverOptions options, const transport::TransportCaps& caps) {
  CostModel& cost = options.planner.cost;
  cost.has_strided = cost.has_strided && caps.strided_pieces;
  cost.has_packing = false;  // no publisher packs yet
  return options;
}

}  // namespace

Receiver::Receiver(const Context& context, Capture capture, SourceTable sources, const ReceiverOptions& options)
    : context_(context),
      log_(context.log, "refit"),
      capture_(std::move(capture)),
      sources_(std::move(sources)),
      options_(narrowed(options, context.transport.caps())) {}

/// Batches before registrations, both before the memory.
Receiver::~Receiver() {
  direct_.clear();
  windows_.clear();
  registrations_.clear();
}

Result<std::unique_ptr<Receiver>> Receiver::prepare(const Context& context, Capture capture, SourceTable sources,
                                                    const Parameters& parameters, const SessionPeers& peers,
                                                    const ReceiverOptions& options) {
  std::unique_ptr<Receiver> receiver(new Receiver(context, std::move(capture), std::move(sources), options));
  receiver->plan_ =
      TOWLINE_TRY(plan_refit(receiver->capture_, receiver->sources_, parameters, receiver->options_.planner));
  TOWLINE_TRY(receiver->allocate(parameters));
  TOWLINE_TRY(receiver->compile(peers));
  return receiver;
}

Result<device::MemoryRegionPtr> Receiver::allocate_staging(uint64_t bytes) {
  device::MemoryRegionPtr region = TOWLINE_TRY(context_.device.allocate(Bytes(bytes), options_.allocate));
  const device::RegionSlice slices[] = {device::RegionSlice::whole(region)};
  registrations_.push_back(TOWLINE_TRY(context_.transport.register_regions(slices)));
  memory_bytes_ += bytes;
  return region;
}

/// One slab for all parameters and one for all that is staged, so that each has one key.
Result<void> Receiver::allocate(const Parameters& parameters) {
  uint64_t bytes = 0;
  const auto place = [&bytes](uint64_t size) {
    const uint64_t offset = bytes;
    bytes += round_up(Bytes(size), kAlignment).count();
    return offset;
  };
  std::map<std::string, uint64_t> offsets;
  for (const auto& [name, parameter] : parameters) offsets[name] = place(bytes_of(parameter));
  if (bytes > 0) {
    const device::MemoryRegionPtr slab = TOWLINE_TRY(allocate_staging(bytes));
    for (const auto& [name, parameter] : parameters)
      buffers_[name] = {parameter, {slab, Bytes(offsets[name]), Bytes(bytes_of(parameter))}};
  }
  std::vector<std::pair<uint64_t, uint64_t>> wire, cast;  // offset, bytes
  bytes = 0;
  for (const ConvertRead& convert : plan_.converts) {
    const RecordedCopy& copy = capture_.copies[convert.copy];
    const uint64_t elements = tensor::element_count(copy.target_shape).value_or(0);
    const uint64_t wire_bytes = elements * sources_.find(copy.source)->element_bytes;
    const uint64_t cast_bytes = elements * parameters.at(copy.parameter).element_bytes;
    wire.emplace_back(place(wire_bytes), wire_bytes);
    cast.emplace_back(place(cast_bytes), cast_bytes);
  }
  if (bytes > 0) {
    const device::MemoryRegionPtr slab = TOWLINE_TRY(allocate_staging(bytes));
    for (const auto& [offset, size] : wire) wire_staging_.push_back({slab, Bytes(offset), Bytes(size)});
    for (const auto& [offset, size] : cast) cast_staging_.push_back({slab, Bytes(offset), Bytes(size)});
  }
  uint64_t window_max = 0;
  for (const PullWindow& window : plan_.windows) window_max = std::max(window_max, window.bytes);
  if (window_max > 0) window_staging_ = TOWLINE_TRY(allocate_staging(window_max));
  return {};
}

Result<void> Receiver::compile(const SessionPeers& peers) {
  std::vector<device::RegionSlice> targets;
  for (const std::string& name : plan_.parameters) targets.push_back(buffers_.at(name).memory);
  const std::vector<Address> parameters = addresses_of(targets), staging = addresses_of(wire_staging_);
  std::vector<PlacedRules> lists = {{plan_.plain, parameters, true}, {plan_.strided, parameters, false}};
  for (const ConvertRead& convert : plan_.converts) lists.push_back({convert.rules, staging, true});
  direct_ = TOWLINE_TRY(prepare_program(lists, peers));
  for (const PullWindow& window : plan_.windows) {
    const Address address = window_staging_->address();
    const PlacedRules list{window.rules, {&address, 1}, true};
    windows_.push_back(TOWLINE_TRY(prepare_program({&list, 1}, peers)));
  }
  return {};
}

Result<Receiver::Program> Receiver::prepare_program(std::span<const PlacedRules> lists, const SessionPeers& peers) {
  Program program;
  for (SessionReads& reads : compile_reads(lists, sources_, transfer::limits_for(context_.transport.caps()))) {
    const std::string& session = sources_.sessions()[reads.session];
    const auto peer = peers.find(session);
    if (peer == peers.end())
      return fail(Code::kNotFound, "trainer rank '{}': it is to be read from, and no peer of this name was added",
                  session);
    PeerBatch batch{std::move(reads), nullptr};
    batch.batch = TOWLINE_TRY(context_.transport.prepare(peer->second, Direction::kRead, batch.reads.plan.pieces));
    program.push_back(std::move(batch));
  }
  return program;
}

/// A late write of an earlier update would land in the middle of this one.
Result<void> Receiver::check_quiet() {
  if (!unsettled_.empty()) context_.transport.progress();
  std::erase_if(unsettled_, [](const Completion& completion) { return completion.settled(); });
  if (unsettled_.empty()) return {};
  return fail(Code::kUnavailable, Scope::kEndpoint,
              "{} reads of an earlier update were given up and may still land; remove the peers that do not answer",
              unsettled_.size());
}

Result<void> Receiver::read(Program& program, Deadline deadline, UpdateReport& report) {
  std::vector<std::unique_ptr<transfer::BatchRunner>> runners;
  std::vector<transfer::BatchRunner*> all;
  uint64_t bytes = 0, landed = 0;
  for (PeerBatch& peer : program) {
    bytes += peer.reads.plan.bytes.count();
    report.reads += peer.reads.plan.pieces.size();
    const transfer::TransferPlan& plan = peer.reads.plan;
    runners.push_back(std::make_unique<transfer::BatchRunner>(
        context_.transport, plan, *peer.batch,
        transfer::RunOptions{.window_bytes = options_.window_bytes, .deadline = deadline},
        [&landed, &plan](size_t post) {
          landed += plan.posts[post].bytes.count();
          return Result<void>();
        }));
    all.push_back(runners.back().get());
  }
  report.bytes += bytes;
  std::optional<transfer::RunFailure> failure =
      run_all(context_.clock, context_.transport, all, {.deadline = deadline, .stall_timeout = options_.stall_timeout});
  if (!failure) return {};
  unsettled_.insert(unsettled_.end(), failure->unsettled.begin(), failure->unsettled.end());
  return fail(failure->error.code, failure->error.scope,
              "reading from {} trainer ranks: {} ({} of {} bytes had landed)", program.size(), failure->error.message,
              landed, bytes);
}

Result<void> Receiver::copy_local(const LocalCopy& copy, device::Stream& stream, Deadline deadline) {
  const ReadRule& rule = copy.rule;
  return enqueue(stream,
                 device::StridedCopy{.to = part_of(copy.to, rule.target_byte, rule.target_span()),
                                     .from = part_of(copy.from, rule.source_byte, rule.source_span()),
                                     .bytes = Bytes(rule.bytes),
                                     .grid = {rule.outer, rule.inner},
                                     .to_stride = {rule.target_outer, rule.target_inner},
                                     .from_stride = {rule.source_outer, rule.source_inner}},
                 deadline);
}

/// What the source's copies want of the rows that are in the window.
Result<void> Receiver::cut_window(size_t window, device::Stream& stream, Deadline deadline) {
  const PullWindow& pulled = plan_.windows[window];
  const SourceChoice& choice = plan_.choices[pulled.choice];
  const SourceTensor& source = sources_.tensors()[choice.source];
  tensor::Box rows = tensor::Box::whole(source.shape);
  rows.offset[0] = pulled.row_begin;
  rows.extent[0] = pulled.row_end - pulled.row_begin;
  std::vector<ReadRule> rules;
  for (const uint32_t number : choice.copies) {
    const RecordedCopy& copy = capture_.copies[number];
    const CopyGeometry geometry =
        TOWLINE_TRY(geometry_of(copy.chain, source.shape, copy.target_offset, copy.target_shape, copy.target_stride));
    rules.clear();
    append_rules(geometry, rows, source.element_bytes, Coalescing::kFull, {}, rules);
    for (const ReadRule& rule : rules)
      TOWLINE_TRY(copy_local({rule, device::RegionSlice::whole(window_staging_), buffers_.at(copy.parameter).memory},
                             stream, deadline));
  }
  return {};
}

/// From the wire's dtype to the parameter's, side by side; then to where the copy goes.
Result<void> Receiver::cast(size_t convert, device::Stream& stream, Deadline deadline) {
  const RecordedCopy& copy = capture_.copies[plan_.converts[convert].copy];
  const ReceiveBuffer& buffer = buffers_.at(copy.parameter);
  const auto from = tensor::dtype_from_text(plan_.converts[convert].dtype);
  const auto to = tensor::dtype_from_text(copy.target_dtype);
  if (!from || !to)
    return fail(Code::kUnimplemented, "parameter '{}': no cast from {} to {}", copy.parameter,
                plan_.converts[convert].dtype, copy.target_dtype);
  TOWLINE_TRY(enqueue(stream,
                      device::Cast{.to = cast_staging_[convert],
                                   .from = wire_staging_[convert],
                                   .elements = tensor::element_count(copy.target_shape).value_or(0),
                                   .to_dtype = *to,
                                   .from_dtype = *from},
                      kNoDeadline));
  const CopyGeometry geometry =
      TOWLINE_TRY(geometry_of({}, copy.target_shape, copy.target_offset, copy.target_shape, copy.target_stride));
  std::vector<ReadRule> rules;
  append_rules(geometry, tensor::Box::whole(copy.target_shape), buffer.parameter.element_bytes, Coalescing::kFull, {},
               rules);
  for (const ReadRule& rule : rules)
    TOWLINE_TRY(copy_local({rule, cast_staging_[convert], buffer.memory}, stream, deadline));
  return {};
}

Result<UpdateReport> Receiver::update(uint64_t step, const Install& install, Deadline deadline) {
  TOWLINE_TRY(check_quiet());
  UpdateReport report{.step = step};
  const auto stream = TOWLINE_TRY(context_.device.open_stream(std::nullopt));
  TimePoint start = context_.clock.now();
  const auto take = [&](std::optional<Nanoseconds>& stage) {
    const TimePoint now = context_.clock.now();
    stage = stage.value_or(Nanoseconds(0)) + (now - start);
    start = now;
  };
  TOWLINE_TRY(read(direct_, deadline, report));
  take(report.wire);
  for (size_t i = 0; i < windows_.size(); ++i) {
    TOWLINE_TRY(read(windows_[i], deadline, report));
    take(report.wire);
    TOWLINE_TRY(cut_window(i, *stream, deadline));
    TOWLINE_TRY(stream->synchronize(deadline));  // the next window lands in the same staging
    take(report.reslice);
  }
  for (size_t i = 0; i < plan_.converts.size(); ++i) TOWLINE_TRY(cast(i, *stream, deadline));
  TOWLINE_TRY(stream->synchronize(deadline));
  if (!plan_.converts.empty()) take(report.cast);
  start = context_.clock.now();
  TOWLINE_TRY(install(buffers_));
  take(report.install);
  log_.debug("step {}: {} bytes in {} reads", step, report.bytes, report.reads);
  return report;
}

}  // namespace towline::reshard
