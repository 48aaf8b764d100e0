#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "towline/base/bytes.h"
#include "towline/base/clock.h"
#include "towline/base/log.h"
#include "towline/base/result.h"

namespace towline::control {

using Key = std::string;  ///< not empty, at most kKeyBytesMax, any bytes but NUL; `/` separates levels by custom
using KeyPrefix = std::string;
using PageToken = std::string;  ///< opaque; empty is the first page, and the end
using Revision = uint64_t;      ///< grows with every commit of a store; the fencing token. 0: never written.

inline constexpr size_t kKeyBytesMax = 4096;
inline constexpr size_t kValueBytesMax = 128u << 20;
inline constexpr size_t kPageRecordsMax = 1000;
inline constexpr size_t kPageBytesMax = 64u << 20;  ///< of values; a page ends with the record that reaches it
inline constexpr size_t kCommitRecordsMax = 1000;   ///< conditions and writes of one commit, each

struct Record {
  Key key;
  Blob value;
  Revision revision = 0;
  std::optional<Nanoseconds> time_to_live;  ///< what is left of it
};
struct RecordPage {
  std::vector<Record> records;  ///< in key order
  PageToken next;
};
struct Condition {
  Key key;
  Revision revision = 0;  ///< what the record's must be; 0: there is no record
};
struct Write {
  Key key;
  std::optional<Blob> value;  ///< empty: erase
  std::optional<Nanoseconds> time_to_live;
};

/// Control-plane records with compare-and-set and time to live, which runs on the store's clock. Thread-safe.
/// An outage is kUnavailable, never an empty answer.
class Store {
 public:
  virtual ~Store() = default;
  /// Errors of all: kInvalidArgument - a key or token that cannot be; kUnavailable; kDeadlineExceeded.
  virtual Result<std::optional<Record>> find(const Key& key, Deadline deadline) = 0;
  /// An empty prefix lists everything. Records that come or go between two pages may be seen or not; no other is
  /// missed.
  virtual Result<RecordPage> list(const KeyPrefix& prefix, const PageToken& token, Deadline deadline) = 0;
  /// All or none. Returns the revision that every written record now has; without writes, checks the conditions and
  /// returns the store's latest. A record whose time to live is over is no record.
  /// Errors: kAborted - a condition failed, names the key; kInvalidArgument - a key twice, a time to live that is not
  /// positive, or over a limit. After kUnavailable and kDeadlineExceeded it may have been carried out: read again.
  virtual Result<Revision> commit(std::span<const Condition> conditions, std::span<const Write> writes,
                                  Deadline deadline) = 0;
};

struct StoreContext {
  Clock& clock;
  LogSink& log;
};
struct StoreEntry {
  std::string_view name;  ///< the scheme of a store URL
  std::string_view help;
  Result<std::unique_ptr<Store>> (*open)(std::string_view location, const StoreContext& context);
};
std::span<const StoreEntry> builtin_stores();
/// `memory:`, `sqlite:PATH`.
Result<std::unique_ptr<Store>> open_store(std::string_view url, const StoreContext& context);

}  // namespace towline::control
