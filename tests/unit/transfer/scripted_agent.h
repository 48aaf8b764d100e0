#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "towline/base/log.h"
#include "towline/device/device.h"
#include "towline/transport/agent_status.h"
#include "towline/transport/transport.h"

namespace towline::transfer::testing {

/// An agent that is asked for its state, as a NIXL agent is: it keeps what it was asked to do and answers each poll of
/// a transfer with the next of its statuses (the last one for ever).
class ScriptedAgent final : public transport::Transport {
 public:
  struct Prepared {
    transport::PeerId peer;
    Direction direction{};
    std::vector<transport::Piece> pieces;
  };

  ScriptedAgent() {
    caps_.name = "scripted";
    caps_.memory_kinds = {device::MemoryKind::kHost, device::MemoryKind::kDevice};
    caps_.poll_interval = std::chrono::milliseconds(1);
  }

  std::deque<std::string> statuses = {"DONE"};
  std::optional<Error> register_error, prepare_error, post_error, metadata_error;
  bool refuses_release = false;  ///< a transfer under way cannot be called back

  std::vector<std::vector<device::RegionSlice>> registered;  ///< one entry a call
  std::vector<Prepared> prepared;
  size_t live_registrations = 0;
  size_t posts = 0;
  size_t polls = 0;
  size_t released = 0;
  size_t peers_added = 0;
  std::vector<std::string> events;  ///< the calls, in order

  const transport::TransportCaps& caps() const override { return caps_; }

  Result<std::unique_ptr<transport::Registration>> register_regions(
      std::span<const device::RegionSlice> slices) override {
    if (register_error) return *register_error;
    registered.emplace_back(slices.begin(), slices.end());
    events.push_back("register");
    return std::unique_ptr<transport::Registration>(std::make_unique<Registered>(*this));
  }

  Result<Blob> export_metadata() override {
    if (metadata_error) return *metadata_error;
    return Blob{std::byte{'m'}};
  }

  Result<transport::PeerId> add_peer(std::span<const std::byte> /*metadata*/, Deadline /*deadline*/) override {
    events.push_back("add_peer");
    return transport::PeerId(++peers_added);
  }
  Result<void> remove_peer(transport::PeerId /*peer*/, Deadline /*deadline*/) override {
    events.push_back("remove_peer");
    return {};
  }

  Result<std::unique_ptr<transport::Batch>> prepare(transport::PeerId peer, Direction direction,
                                                    std::span<const transport::Piece> pieces) override {
    events.push_back("prepare");
    if (prepare_error) return *prepare_error;
    prepared.push_back({peer, direction, {pieces.begin(), pieces.end()}});
    return std::unique_ptr<transport::Batch>(std::make_unique<ScriptedBatch>(pieces.size()));
  }

  Result<Completion> post(transport::Batch& /*batch*/, transport::PieceRange pieces,
                          const transport::PostOptions& /*options*/) override {
    events.push_back("post");
    if (post_error) return *post_error;
    ++posts;
    auto source = std::make_unique<CompletionSource>(pieces.count);
    CompletionSource* const raw = source.get();
    source->on_cancel([this, raw] {
      ++released;
      if (refuses_release)
        raw->unsettle(fail(Code::kCancelled, "given up"));
      else
        raw->finish(fail(Code::kCancelled, "given up"));
    });
    Completion completion = source->completion();
    under_way_.push_back(std::move(source));
    return completion;
  }

  size_t progress() override {
    size_t ended = 0;
    for (const auto& source : under_way_) {
      if (source->completion().settled()) continue;
      ++polls;
      const std::string status = statuses.front();
      if (statuses.size() > 1) statuses.pop_front();
      const Phase phase = transport::classify_agent_status(status);
      if (phase == Phase::kPending) continue;
      ++ended;
      if (phase == Phase::kDone) {
        source->finish({});
        continue;
      }
      source->finish(fail(Code::kInternal, "failed with status {}", status));
      break;
    }
    return ended;
  }
  const Signal& signal() const override { return signal_; }
  device::SegmentSource* segments() override { return nullptr; }

 private:
  class Registered final : public transport::Registration {
   public:
    explicit Registered(ScriptedAgent& agent) : agent_(agent) { ++agent_.live_registrations; }
    ~Registered() override {
      agent_.events.push_back("deregister");
      --agent_.live_registrations;
    }

   private:
    ScriptedAgent& agent_;
  };
  class ScriptedBatch final : public transport::Batch {
   public:
    explicit ScriptedBatch(size_t size) : size_(size) {}
    size_t size() const override { return size_; }

   private:
    size_t size_;
  };

  transport::TransportCaps caps_;
  Signal signal_;
  std::vector<std::unique_ptr<CompletionSource>> under_way_;
};

/// Keeps the lines.
class LinesLog final : public LogSink {
 public:
  bool enabled(LogLevel /*level*/) const override { return true; }
  void write(LogLevel level, std::string_view /*component*/, std::string_view message) override {
    if (level == LogLevel::kWarning) warnings.emplace_back(message);
  }
  std::vector<std::string> warnings;
};

/// A driver of which the test says what it has allocated.
class ScriptedDevice final : public device::Device {
 public:
  ScriptedDevice() {
    caps_.name = "scripted";
    caps_.memory_kind = device::MemoryKind::kDevice;
    caps_.virtual_memory = true;
    caps_.host_readable = true;  // nothing to synchronise
  }
  std::vector<device::Allocation> allocations;
  std::vector<Address> asked;

  const device::DeviceCaps& caps() const override { return caps_; }
  device::DeviceCaps& caps() { return caps_; }
  Result<device::MemoryRegionPtr> allocate(Bytes /*bytes*/, device::AllocateOptions /*options*/) override {
    return fail(Code::kUnimplemented, "no memory");
  }
  Result<device::Allocation> get_allocation(Address address) override {
    asked.push_back(address);
    for (const device::Allocation& one : allocations)
      if (contains(one.base, one.bytes, address, Bytes(1))) return one;
    return fail(Code::kNotFound, "cuMemGetAddressRange failed (CUDA_ERROR_INVALID_VALUE)");
  }
  Result<std::unique_ptr<device::Reservation>> reserve(Bytes /*bytes*/) override {
    return fail(Code::kUnimplemented, "no addresses");
  }
  Result<std::unique_ptr<device::Stream>> open_stream(std::optional<uint64_t> /*raw*/) override {
    return fail(Code::kUnimplemented, "no streams");
  }

 private:
  device::DeviceCaps caps_;
};

}  // namespace towline::transfer::testing
