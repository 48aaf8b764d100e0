#include "towline/loader/internal/chunk_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "towline/loader/internal/pages.h"

namespace towline::loader::internal {
namespace {

/// A chunk on its way. The first `done` bytes have landed before; the request under way reads the rest.
struct Flight {
  Chunk chunk;
  ChunkSink::Target target;
  Bytes done;
  bool stuck = false;  ///< the last request brought nothing
  Completion read = {};
};

class Reader {
 public:
  Reader(const ReadSource& source, const ChunkRange& range, ChunkSink& sink)
      : source_(source),
        range_(range),
        sink_(sink),
        direct_(source.file.path() == storage::DataPath::kDirect),
        in_flight_max_(std::clamp<size_t>(source.storage.caps().segments_in_flight_max, 1, range.in_flight)),
        next_(range.begin) {}

  Result<void> run() {
    while (next_ < range_.end || !flights_.empty()) {
      TOWLINE_TRY(fill());
      TOWLINE_TRY(finish_oldest());
    }
    return {};
  }

 private:
  Result<void> fill();
  Result<void> submit(Flight& flight);
  Result<void> finish_oldest();
  Result<bool> advance(Flight& flight);
  Chunk next_chunk() const;

  const ReadSource& source_;
  const ChunkRange range_;
  ChunkSink& sink_;
  const bool direct_;
  const size_t in_flight_max_;
  Bytes next_;
  std::deque<Flight> flights_;
};

Chunk Reader::next_chunk() const {
  const Bytes needed = std::min(range_.end - next_, kChunkBytes);
  return Chunk{next_, direct_ ? round_up(needed, kPageBytes) : needed, needed};
}

Result<void> Reader::fill() {
  while (next_ < range_.end && flights_.size() < in_flight_max_) {
    if (!flights_.empty() && !flights_.back().read.valid()) return {};
    Flight flight{.chunk = next_chunk(), .target = {}, .done = Bytes(0)};
    flight.target = TOWLINE_TRY(sink_.place(flight.chunk));
    next_ += flight.chunk.needed;
    const auto started = submit(flight);
    // Full: this one is started when it has become the oldest.
    const bool full = !started && started.error().code == Code::kResourceExhausted && !flights_.empty();
    if (!started && !full) return started;
    flights_.push_back(std::move(flight));
  }
  return {};
}

Result<void> Reader::submit(Flight& flight) {
  const storage::Segment segment{flight.chunk.offset + flight.done, flight.target.region,
                                 flight.target.offset + flight.done, flight.chunk.bytes - flight.done};
  flight.read = TOWLINE_TRY(source_.file.submit(Direction::kRead, std::span(&segment, 1), nullptr, source_.deadline));
  return {};
}

Result<void> Reader::finish_oldest() {
  Flight& flight = flights_.front();
  for (bool landed = false; !landed;) {
    if (!flight.read.valid()) TOWLINE_TRY(submit(flight));
    TOWLINE_TRY(storage::await(source_.clock, source_.storage, flight.read, source_.deadline,
                               fmt::format("file '{}': reading at {}", source_.path, flight.chunk.offset)));
    landed = TOWLINE_TRY(advance(flight));
  }
  const Flight done = std::move(flight);
  flights_.pop_front();
  return sink_.landed(done.chunk, done.target);
}

/// Counts what the request brought. True: the chunk is whole. Direct requests go on from a page.
Result<bool> Reader::advance(Flight& flight) {
  const Bytes moved = flight.read.moved(0);
  if (flight.done + moved >= flight.chunk.needed) return true;
  const Bytes kept = direct_ ? round_down(moved, kPageBytes) : moved;
  if (kept == Bytes(0) && flight.stuck) {
    return fail(Code::kAborted, "file '{}': ended at byte {} while it was loaded, its header says {}; load it again",
                source_.path, flight.chunk.offset + flight.done + moved, range_.end);
  }
  flight.stuck = kept == Bytes(0);
  flight.done += kept;
  flight.read = Completion();
  return false;
}

}  // namespace

Result<void> read_chunks(const ReadSource& source, const ChunkRange& range, ChunkSink& sink) {
  return Reader(source, range, sink).run();
}

}  // namespace towline::loader::internal
