#include "towline/reshard/receiver.h"

#include <algorithm>

#include "towline/base/completion.h"
#include "towline/reshard/detour.h"
#include "towline/reshard/geometry.h"
#include "towline/reshard/local_copy.h"

namespace towline::reshard {
namespace {

constexpr Bytes kAlignment = Bytes(256);  // as transfer/layout.h has it

uint64_t bytes_of(const Parameter& parameter) {
  return tensor::element_count(parameter.shape).value_or(0) * parameter.element_bytes;
}

/// Buffers side by side in one region.
struct Slab {
  uint64_t bytes = 0;
  uint64_t place(uint64_t size) {
    const uint64_t offset = bytes;
    bytes += round_up(Bytes(size), kAlignment).count();
    return offset;
  }
};

std::vector<Address> addresses_of(const std::vector<device::RegionSlice>& slices) {
  std::vector<Address> addresses;
  for (const device::RegionSlice& slice : slices) addresses.push_back(slice.address());
  return addresses;
}

}  // namespace

/// One update under way.
struct Receiver::Update {
  UpdateReport report;
  Deadline deadline;
  device::Stream& stream;
  std::vector<uint64_t> unread;  ///< bytes that wire_staging_ of each cast still lacks
};

std::string describe_stages(const UpdateReport& report) {
  std::string text;
  const auto add = [&text](std::string_view name, const std::optional<Nanoseconds>& span) {
    if (!span) return;
    text += fmt::format("{}{} {:.3f} s", text.empty() ? "" : ", ", name, std::chrono::duration<double>(*span).count());
  };
  add("wire", report.wire);
  add("re-slice", report.reslice);
  add("cast", report.cast);
  add("tail", report.tail);
  add("install", report.install);
  return text;
}

Receiver::Receiver(const Context& context, RefitPlan plan, const SessionPeers& peers, const ReceiverOptions& options)
    : context_(context),
      log_(context.log, "refit"),
      options_(options),
      refit_(std::move(plan)),
      wire_({context.clock, context.log, context.transport, refit_.sources}, peers,
            {options.window_bytes, options.stall_timeout, refit_.reader}) {}

/// Batches before registrations, both before the memory.
Receiver::~Receiver() {
  direct_.clear();
  windows_.clear();
  registrations_.clear();
}

Result<std::unique_ptr<Receiver>> Receiver::prepare(const Context& context, RefitPlan plan, const SessionPeers& peers,
                                                    const ReceiverOptions& options) {
  std::unique_ptr<Receiver> receiver(new Receiver(context, std::move(plan), peers, options));
  TOWLINE_TRY(receiver->allocate());
  TOWLINE_TRY(receiver->allocate_converts());
  TOWLINE_TRY(receiver->allocate_windows());
  TOWLINE_TRY(receiver->compile());
  return receiver;
}

Result<device::MemoryRegionPtr> Receiver::allocate_staging(uint64_t bytes) {
  device::MemoryRegionPtr region = TOWLINE_TRY(context_.device.allocate(Bytes(bytes), options_.allocate));
  const device::RegionSlice slices[] = {device::RegionSlice::whole(region)};
  registrations_.push_back(TOWLINE_TRY(context_.transport.register_regions(slices)));
  memory_bytes_ += bytes;
  return region;
}

/// One slab for all parameters, so that they have one key.
Result<void> Receiver::allocate() {
  const Parameters& parameters = refit_.parameters;
  Slab slab;
  std::map<std::string, uint64_t> offsets;
  for (const auto& [name, parameter] : parameters) offsets[name] = slab.place(bytes_of(parameter));
  if (slab.bytes == 0) return {};
  const device::MemoryRegionPtr memory = TOWLINE_TRY(allocate_staging(slab.bytes));
  for (const auto& [name, parameter] : parameters)
    buffers_[name] = {parameter, {memory, Bytes(offsets[name]), Bytes(bytes_of(parameter))}};
  return {};
}

/// One slab for all that is cast: as it comes, and cast.
Result<void> Receiver::allocate_converts() {
  Slab slab;
  std::vector<std::pair<uint64_t, uint64_t>> wire, cast;  // offset, bytes
  for (const ConvertRead& convert : refit_.reads.converts) {
    const RecordedCopy& copy = refit_.capture.copies[convert.copy];
    const uint64_t elements = tensor::element_count(copy.target_shape).value_or(0);
    const uint64_t wire_bytes = elements * refit_.sources.find(copy.source)->element_bytes;
    const uint64_t cast_bytes = elements * refit_.parameters.at(copy.parameter).element_bytes;
    wire.emplace_back(slab.place(wire_bytes), wire_bytes);
    cast.emplace_back(slab.place(cast_bytes), cast_bytes);
  }
  if (slab.bytes == 0) return {};
  const device::MemoryRegionPtr memory = TOWLINE_TRY(allocate_staging(slab.bytes));
  for (const auto& [offset, size] : wire) wire_staging_.push_back({memory, Bytes(offset), Bytes(size)});
  for (const auto& [offset, size] : cast) cast_staging_.push_back({memory, Bytes(offset), Bytes(size)});
  return {};
}

Result<void> Receiver::allocate_windows() {
  uint64_t largest = 0;
  for (const PullWindow& window : refit_.reads.windows) largest = std::max(largest, window.bytes);
  if (largest == 0) return {};
  const size_t count = is_overlapped() && refit_.reads.windows.size() > 1 ? 2 : 1;
  for (size_t i = 0; i < count; ++i)
    window_buffers_.push_back({
      TOWLINE_TRY(allocate_staging(largest))
      , std::nullopt
    });
  return {};
}

Result<void> Receiver::compile() {
  std::vector<device::RegionSlice> targets;
  for (const std::string& name : refit_.reads.parameters) targets.push_back(buffers_.at(name).memory);
  const std::vector<Address> parameters = addresses_of(targets), staging = addresses_of(wire_staging_);
  std::vector<PlacedRules> lists = {{refit_.reads.plain, parameters, true},
                                    {refit_.reads.strided, parameters, false},
                                    {refit_.reads.packed, parameters, true}};
  for (const ConvertRead& convert : refit_.reads.converts) lists.push_back({convert.rules, staging, true});
  direct_ = TOWLINE_TRY(wire_.prepare(lists));
  windows_.clear();
  for (size_t i = 0; i < refit_.reads.windows.size(); ++i) {
    const Address address = buffer_of(i).memory->address();
    const PlacedRules list{refit_.reads.windows[i].rules, {&address, 1}, true};
    windows_.push_back(TOWLINE_TRY(wire_.prepare({&list, 1})));
  }
  return {};
}

/// Sessions that were lost are asked no more.
Result<void> Receiver::follow_losses() {
  const std::vector<bool>& lost = wire_.lost();
  const auto count = static_cast<size_t>(std::count(lost.begin(), lost.end(), true));
  if (count == losses_followed_) return {};
  Detour detour(refit_.sources, lost, refit_.reader);
  for (auto* list : {&refit_.reads.plain, &refit_.reads.strided, &refit_.reads.packed})
    TOWLINE_TRY(detour.redirect(*list));
  for (ConvertRead& convert : refit_.reads.converts) TOWLINE_TRY(detour.redirect(convert.rules));
  for (PullWindow& window : refit_.reads.windows) TOWLINE_TRY(detour.redirect(window.rules));
  TOWLINE_TRY(compile());
  losses_followed_ = count;
  return {};
}

Result<void> Receiver::read(const WireProgram& program, const WireReader::OnLanded& on_landed, Update& update) {
  const TimePoint start = context_.clock.now();
  const WireTotals totals = TOWLINE_TRY(wire_.read(program, on_landed, update.deadline));
  UpdateReport& report = update.report;
  report.wire = report.wire.value_or(Nanoseconds(0)) + (context_.clock.now() - start);
  report.bytes += totals.bytes;
  report.reads += totals.reads;
  report.detoured += totals.detoured;
  return {};
}

/// What has landed of what is cast; a cast whose bytes are all there begins. A piece may hold parts of several.
Result<void> Receiver::cast_landed(const transport::Piece& piece, Update& update) {
  const Address begin = piece.local, end = piece.local + piece.bytes;
  if (end <= wire_staging_.front().address() || begin >= wire_staging_.back().address() + wire_staging_.back().bytes)
    return {};
  auto next = std::upper_bound(wire_staging_.begin(), wire_staging_.end(), begin,
                               [](Address at, const device::RegionSlice& slice) { return at < slice.address(); });
  for (auto slice = next == wire_staging_.begin() ? next : std::prev(next);
       slice != wire_staging_.end() && slice->address() < end; ++slice) {
    const Address from = std::max(begin, slice->address()), to = std::min(end, slice->address() + slice->bytes);
    if (from >= to) continue;
    const auto convert = static_cast<size_t>(slice - wire_staging_.begin());
    update.unread[convert] -= (to - from).count();
    if (update.unread[convert] == 0) TOWLINE_TRY(cast(convert, update));
  }
  return {};
}

/// Where it is overlapped, the cut is left to the stream: only the next window in the same buffer waits for it.
Result<void> Receiver::pull_window(size_t window, Update& update) {
  WindowBuffer& buffer = buffer_of(window);
  if (buffer.cut)
    TOWLINE_TRY(await(context_.clock, buffer.cut->completion(), update.deadline, "the cut of an earlier window"));
  buffer.cut.reset();
  TOWLINE_TRY(read(windows_[window], nullptr, update));
  const TimePoint start = context_.clock.now();
  TOWLINE_TRY(cut_window(window, update));
  if (is_overlapped()) return buffer.cut = TOWLINE_TRY(update.stream.record())
  , Result<void>();
  TOWLINE_TRY(update.stream.synchronize(update.deadline));
  std::optional<Nanoseconds>& stage = update.report.reslice;
  stage = stage.value_or(Nanoseconds(0)) + (context_.clock.now() - start);
  return {};
}

/// What the source's copies want of the rows that are in the window.
Result<void> Receiver::cut_window(size_t window, Update& update) {
  const PullWindow& pulled = refit_.reads.windows[window];
  const SourceChoice& choice = refit_.reads.choices[pulled.choice];
  const SourceTensor& source = refit_.sources.tensors()[choice.source];
  const device::RegionSlice staging = device::RegionSlice::whole(buffer_of(window).memory);
  tensor::Box rows = tensor::Box::whole(source.shape);
  rows.offset[0] = pulled.row_begin;
  rows.extent[0] = pulled.row_end - pulled.row_begin;
  std::vector<ReadRule> rules;
  for (const uint32_t number : choice.copies) {
    const RecordedCopy& copy = refit_.capture.copies[number];
    const CopyGeometry geometry =
        TOWLINE_TRY(geometry_of(copy.chain, source.shape, copy.target_offset, copy.target_shape, copy.target_stride));
    rules.clear();
    append_rules(geometry, rows, source.element_bytes, Coalescing::kFull, {}, rules);
    for (const ReadRule& rule : rules)
      TOWLINE_TRY(enqueue_copy(update.stream, rule, staging, buffers_.at(copy.parameter).memory, update.deadline));
  }
  return {};
}

/// From the wire's dtype to the parameter's, side by side; then to where the copy goes.
Result<void> Receiver::cast(size_t convert, Update& update) {
  const RecordedCopy& copy = refit_.capture.copies[refit_.reads.converts[convert].copy];
  const ReceiveBuffer& buffer = buffers_.at(copy.parameter);
  const auto from = tensor::dtype_from_text(refit_.reads.converts[convert].dtype);
  const auto to = tensor::dtype_from_text(copy.target_dtype);
  if (!from || !to)
    return fail(Code::kUnimplemented, "parameter '{}': no cast from {} to {}", copy.parameter,
                refit_.reads.converts[convert].dtype, copy.target_dtype);
  TOWLINE_TRY(enqueue(update.stream,
                      device::Cast{.to = cast_staging_[convert],
                                   .from = wire_staging_[convert],
                                   .elements = tensor::element_count(copy.target_shape).value_or(0),
                                   .to_dtype = *to,
                                   .from_dtype = *from},
                      update.deadline));
  const CopyGeometry geometry =
      TOWLINE_TRY(geometry_of({}, copy.target_shape, copy.target_offset, copy.target_shape, copy.target_stride));
  std::vector<ReadRule> rules;
  append_rules(geometry, tensor::Box::whole(copy.target_shape), buffer.parameter.element_bytes, Coalescing::kFull, {},
               rules);
  for (const ReadRule& rule : rules)
    TOWLINE_TRY(enqueue_copy(update.stream, rule, cast_staging_[convert], buffer.memory, update.deadline));
  return {};
}

/// A wire that is faster than it can be has not moved the payload. Source: reshard.md 3.7.
Result<void> Receiver::check_rate(const UpdateReport& report) const {
  const double seconds = std::chrono::duration<double>(report.wire.value_or(Nanoseconds(0))).count();
  const double limit = options_.wire_bytes_per_s_max;
  if (limit <= 0 || seconds <= 0 || report.bytes == 0) return {};
  const double rate = static_cast<double>(report.bytes) / seconds;
  if (rate <= limit) return {};
  return fail(
      Code::kDataLoss,
      "step {}: {} bytes in {:.6f} s is {:.1f} GB/s where at most {:.1f} are possible: the wire reported success "
      "without moving the payload; it has failed, it is not fast",
      report.step, report.bytes, seconds, rate / 1e9, limit / 1e9);
}

Result<void> Receiver::run(Update& update) {
  UpdateReport& report = update.report;
  for (const device::RegionSlice& slice : wire_staging_) update.unread.push_back(slice.bytes.count());
  const bool casts_as_it_lands = is_overlapped() && !wire_staging_.empty();
  const auto landed = [&](const transport::Piece& piece) { return cast_landed(piece, update); };
  TOWLINE_TRY(read(direct_, casts_as_it_lands ? WireReader::OnLanded(landed) : nullptr, update));
  TOWLINE_TRY(follow_losses());
  for (size_t i = 0; i < windows_.size(); ++i) {
    TOWLINE_TRY(pull_window(i, update));
    TOWLINE_TRY(follow_losses());
  }
  TOWLINE_TRY(check_rate(report));
  const TimePoint start = context_.clock.now();
  if (!is_overlapped())
    for (size_t i = 0; i < refit_.reads.converts.size(); ++i) TOWLINE_TRY(cast(i, update));
  TOWLINE_TRY(update.stream.synchronize(update.deadline));
  const bool has_local = !refit_.reads.converts.empty() || (is_overlapped() && !refit_.reads.windows.empty());
  if (has_local) (is_overlapped() ? report.tail : report.cast) = context_.clock.now() - start;
  return {};
}

Result<UpdateReport> Receiver::update(uint64_t step, const Install& install, Deadline deadline) {
  TOWLINE_TRY(wire_.check_quiet());
  const auto stream = TOWLINE_TRY(context_.device.open_stream(std::nullopt));  // ends what is enqueued when it goes
  Update update{{.step = step}, deadline, *stream, {}};
  for (WindowBuffer& buffer : window_buffers_) buffer.cut.reset();
  TOWLINE_TRY(run(update));
  const TimePoint start = context_.clock.now();
  TOWLINE_TRY(install(buffers_));
  update.report.install = context_.clock.now() - start;
  log_.info("step {}: {} bytes in {} reads: {}", step, update.report.bytes, update.report.reads,
            describe_stages(update.report));
  return std::move(update.report);
}

}  // namespace towline::reshard
