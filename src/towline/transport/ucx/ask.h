#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>

#include "towline/base/bytes.h"
#include "towline/base/error.h"

// Where UCX has no one-sided way to a peer (TCP, shared memory that nobody can map), UCX 1.13 would emulate gets and
// puts by reading and writing whatever address the peer names: memory that was freed meanwhile ends the process. So
// there we ask, and the peer's MemoryServer answers for memory that is registered at that moment, and for no other.
//
// Two active messages, always eager, so that bytes land only where our own code puts them:
//   ask    header {id, address, bytes, kind}; a put's bytes follow
//   answer header {id, verdict};              a get's bytes follow

namespace towline::transport::ucx {

inline constexpr unsigned kAskMessage = 1;
inline constexpr unsigned kAnswerMessage = 2;
/// Asked for at once: long enough for the stack's costs, short enough that a give-up is prompt.
inline constexpr Bytes kAskBytesMax = KiB(256);

enum class AskKind : uint32_t { kGet = 1, kPut = 2 };
struct AskHeader {
  uint64_t id;
  uint64_t address;
  uint64_t bytes;
  AskKind kind;
  uint32_t reserved;
};

enum class Verdict : uint32_t {
  kDone = 0,
  kNotRegistered = 1,  ///< not any more, or not all of it
  kMalformed = 2,
};
struct AnswerHeader {
  uint64_t id;
  Verdict verdict;
  uint32_t reserved;
};

class Connection;
struct Operation;

/// An ask under way. It ends when UCX has sent it and an answer has come, or none is waited for.
struct Ask {
  AskHeader header;
  Connection* connection;
  Operation* operation;  ///< null: reported, or given up
  size_t piece;
  std::byte* local;
  bool sent = false;
  bool answered = false;
  std::optional<Error> error = {};
};

/// The asks of all connections, by id. Ids are never used again, so an answer that nobody waits for is known as such.
class AskBook {
 public:
  Ask& open(Ask ask);
  Ask* find(uint64_t id);
  void close(const Ask& ask) { asks_.erase(ask.header.id); }
  const std::unordered_map<uint64_t, std::unique_ptr<Ask>>& all() const { return asks_; }

 private:
  uint64_t last_id_ = 0;
  std::unordered_map<uint64_t, std::unique_ptr<Ask>> asks_;
};

}  // namespace towline::transport::ucx
