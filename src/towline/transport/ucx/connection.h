#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "towline/base/clock.h"
#include "towline/base/log.h"
#include "towline/transport/ucx/ask.h"
#include "towline/transport/ucx/chunk.h"
#include "towline/transport/ucx/operation.h"

struct ucp_worker;
struct ucp_ep;
struct ucp_rkey;

namespace towline::transport::ucx {

/// What becomes of one chunk.
enum class Step : uint8_t {
  kMoved,    ///< done on the spot
  kStarted,  ///< UCX has it, and will report
  kLater,    ///< no room now
};

/// The way to one peer: a UCX endpoint, the peer's keys unpacked once each, and, on one host, its memory. Owner thread:
/// the progress thread.
///
/// Bytes go by the first of these that reaches: a mapping of the peer's segment (memcpy), the kernel (ProcessMemory),
/// UCX's gets and puts (RDMA), asking the peer (ask.h). A segment's pages are not in our page table at first, and to
/// fault them in one by one costs more than the kernel's copy; so each block is read through the kernel once, and
/// mapped when it is read again (refits).
///
/// Death is seen three ways: the peer's process has ended (a pidfd), its hello token has changed (it closed), UCX's
/// error callback (connection reset, keepalive).
class Connection {
 public:
  /// How requests that UCX has taken are reported, on the progress thread, within progress().
  class Reports {
   public:
    virtual ~Reports() = default;
    virtual void chunk_ended(Operation& operation, size_t piece, Bytes bytes, Result<void> result) = 0;
    virtual void flush_ended(Operation& operation, Result<void> result) = 0;
  };
  struct World {
    ucp_worker* worker;
    Clock& clock;
    const Logger& log;
    Reports& reports;
    AskBook& asks;
    bool may_use_process_memory;
    bool has_rdma;  ///< UCX has gets and puts of its own here: else we ask
  };

  /// Takes the answers to all connections' asks. Before the worker makes progress.
  static Result<void> listen(ucp_worker* worker, AskBook& asks);
  Connection(const World& world, std::shared_ptr<Peer> peer);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection();

  /// Starts to connect; the peer's state tells the end.
  void open();
  /// Moves a chunk for `piece` of the operation. An error is the chunk's; one of scope kEndpoint ends the connection.
  Result<Step> move(const Chunk& chunk, Operation& operation, size_t piece);
  /// How long a chunk there may be at most.
  Result<Bytes> chunk_bytes_max(uint32_t key, uint64_t remote);
  /// The operation was given up: answers to its gets are not waited for, and their bytes never land.
  void abandon(Operation& operation);
  /// Starts to wait until the peer has what was written through UCX: kMoved, or kStarted.
  Result<Step> flush(Operation& operation);

  /// The peer has gone, or we give it up: fails it and closes by force. Operations end through Reports.
  void fail(Error error);
  /// Lets what UCX has of it drain until `until`, then closes by force.
  void begin_close(Error why, Deadline until);
  /// Goes on closing; whether it is closed: nothing outstanding, nothing can land.
  bool finish_close(TimePoint now);
  /// When finish_close has something to do though UCX is silent.
  Deadline close_deadline() const;

  /// Before the worker goes; nothing can be moved afterwards.
  void release_keys();

  bool closing() const { return closing_; }
  size_t outstanding() const { return outstanding_; }
  /// Readable when its process has ended; -1: unknown.
  int process_fd() const { return process_fd_.get(); }
  void process_ended();
  /// Whether UCX works for it and a silent end of the peer would show in its hello token only: look again soon.
  bool wants_watch() const { return outstanding_ != 0 && !closing_ && (hello_view_ != nullptr || process_); }
  /// Fails when the token is not shown any more.
  void watch_hello();

  /// Operations that refer to this.
  size_t operations = 0;

 private:
  struct Block {
    uint64_t bytes_moved = 0;
    bool populated = false;
  };
  struct Key {
    ucp_rkey* handle = nullptr;
    std::unordered_map<uint64_t, Block> blocks = {};  ///< of memory we have mapped, by remote address / block size
  };
  struct Request;
  struct Callbacks;  // what UCX calls

  Result<void> connect();
  Result<void> watch_process_of_peer();
  Result<void> create_endpoint();
  Result<void> find_process_memory();
  Result<void> ask_hello();
  void judge_hello(int status);
  Result<ucp_rkey*> unpack(uint32_t index);
  std::byte* find_mapped(uint32_t key, uint64_t remote);
  Result<void> check_alive() const;
  Block& block_of(const Chunk& chunk);
  Result<Step> move_mapped(const Chunk& chunk, std::byte* mapped);
  Result<Step> move_through_kernel(const Chunk& chunk, Operation& operation, size_t piece);
  Result<Step> ask(const Chunk& chunk, Operation& operation, size_t piece);
  void settle(Ask& ask, Result<void> result);
  void take_answer(Ask& ask, const AnswerHeader& answer, std::span<const std::byte> bytes);
  void end_asks();
  Result<Step> move_through_ucx(const Chunk& chunk, Operation& operation, size_t piece);
  Result<void> result_of(int status) const;
  Request* take_request();
  void give_back(Request* request);
  void drain();
  void force_close();

  const World world_;
  const std::shared_ptr<Peer> peer_;
  ucp_ep* endpoint_ = nullptr;
  std::vector<Key> keys_;
  const std::byte* hello_view_ = nullptr;  // the peer's hello page where we have it mapped
  HelloToken hello_answer_{};              // written by UCX
  std::optional<ProcessMemory> process_;
  FileDescriptor process_fd_;

  std::vector<std::unique_ptr<Request>> requests_;
  std::vector<Request*> free_requests_;
  size_t outstanding_ = 0;  // requests that UCX has, whatever for
  Bytes outstanding_bytes_;

  bool closing_ = false;
  bool forced_ = false;  // the endpoint was closed by force
  Deadline drain_until_ = Deadline::min();
};

}  // namespace towline::transport::ucx
