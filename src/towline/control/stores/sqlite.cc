#include "towline/control/stores/sqlite.h"

#include <sqlite3.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <mutex>

#include "towline/control/internal/store_checks.h"

namespace towline::control {
namespace {

constexpr int kFormatVersion = 1;                              // PRAGMA user_version of the file
constexpr Nanoseconds kOpenBusyMax = std::chrono::seconds(5);  // for another process that is just making the file
constexpr Nanoseconds kBusyPauseMin = std::chrono::milliseconds(1);
constexpr Nanoseconds kBusyPauseMax = std::chrono::milliseconds(20);

Code sqlite_code(int result) {
  switch (result & 0xFF) {
    case SQLITE_FULL:
    case SQLITE_NOMEM:
    case SQLITE_TOOBIG:
      return Code::kResourceExhausted;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Code::kDataLoss;
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return Code::kPermissionDenied;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_PROTOCOL:
      return Code::kUnavailable;
    default:
      return Code::kInternal;
  }
}

bool is_busy(const Error& error) { return error.scope == Scope::kOperation && error.code == Code::kUnavailable; }

struct DatabaseCloser {
  void operator()(sqlite3* database) const { sqlite3_close_v2(database); }
};
struct StatementCloser {
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Database = std::unique_ptr<sqlite3, DatabaseCloser>;

/// One connection's failures as Errors: busy has scope kOperation (wait and try again), the rest the endpoint's.
class Connection {
 public:
  Connection(Database database, std::string path) : database_(std::move(database)), path_(std::move(path)) {}

  Error error(int result, std::string_view doing) const {
    const bool busy = (result & 0xFF) == SQLITE_BUSY || (result & 0xFF) == SQLITE_LOCKED;
    Error error = fail(sqlite_code(result), "store file '{}': {}: {}", path_, doing, sqlite3_errmsg(database_.get()));
    error.scope = busy ? Scope::kOperation : Scope::kEndpoint;
    if (error.code == Code::kResourceExhausted) error.message += "; free some space and try again";
    return error;
  }
  Result<void> execute(const char* sql) {
    const int result = sqlite3_exec(database_.get(), sql, nullptr, nullptr, nullptr);
    if (result != SQLITE_OK) return error(result, sql);
    return {};
  }
  sqlite3* get() const { return database_.get(); }
  const std::string& path() const { return path_; }

 private:
  Database database_;
  std::string path_;
};

/// One prepared statement, reset when its use ends.
class Statement {
 public:
  static Result<Statement> prepare(const Connection& connection, const char* sql) {
    sqlite3_stmt* raw = nullptr;
    const int result = sqlite3_prepare_v3(connection.get(), sql, -1, SQLITE_PREPARE_PERSISTENT, &raw, nullptr);
    if (result != SQLITE_OK) return connection.error(result, "prepare");
    Statement statement;
    statement.raw_.reset(raw);
    return statement;
  }

  Statement& bind(int index, int64_t value) { return sqlite3_bind_int64(raw_.get(), index, value), *this; }
  Statement& bind_blob(int index, std::span<const std::byte> bytes) {
    // A null pointer would bind NULL instead of an empty blob.
    const void* data = bytes.empty() ? static_cast<const void*>("") : bytes.data();
    return sqlite3_bind_blob64(raw_.get(), index, data, bytes.size(), SQLITE_STATIC), *this;
  }
  int64_t integer(int column) const { return sqlite3_column_int64(raw_.get(), column); }
  Blob blob(int column) const {
    const auto* data = static_cast<const std::byte*>(sqlite3_column_blob(raw_.get(), column));
    return Blob(data, data + sqlite3_column_bytes(raw_.get(), column));
  }
  std::string text(int column) const {
    const auto bytes = blob(column);
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  /// True: a row is there.
  Result<bool> step(const Connection& connection, std::string_view doing) {
    const int result = sqlite3_step(raw_.get());
    if (result != SQLITE_ROW && result != SQLITE_DONE) return connection.error(result, doing);
    return result == SQLITE_ROW;
  }
  void reset() { sqlite3_reset(raw_.get()), sqlite3_clear_bindings(raw_.get()); }

 private:
  std::unique_ptr<sqlite3_stmt, StatementCloser> raw_;
};

class ResetOnExit {
 public:
  explicit ResetOnExit(Statement& statement) : statement_(statement) {}
  ResetOnExit(const ResetOnExit&) = delete;
  ResetOnExit& operator=(const ResetOnExit&) = delete;
  ~ResetOnExit() { statement_.reset(); }

 private:
  Statement& statement_;
};

/// Rolls back unless committed.
class Transaction {
 public:
  explicit Transaction(Connection& connection) : connection_(connection) {}
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  ~Transaction() {
    if (open_) static_cast<void>(connection_.execute("ROLLBACK"));  // fails only when SQLite has rolled back itself
  }
  Result<void> begin(const char* sql) {
    TOWLINE_TRY(connection_.execute(sql));
    open_ = true;
    return {};
  }
  Result<void> commit() {
    TOWLINE_TRY(connection_.execute("COMMIT"));
    open_ = false;
    return {};
  }

 private:
  Connection& connection_;
  bool open_ = false;
};

enum StatementIndex : size_t { kFind, kList, kPut, kErase, kEraseExpired, kReadState, kWriteState, kStatementCount };
// Keys are blobs: they compare as bytes, and any byte may be in them. `expiry` is on the store's clock, in ns.
constexpr std::array<const char*, kStatementCount> kSql = {
    "SELECT value, revision, expiry FROM records WHERE key = ?1 AND expiry > ?2",
    "SELECT key, value, revision, expiry FROM records WHERE key >= ?1 AND expiry > ?2 ORDER BY key",
    "INSERT OR REPLACE INTO records (key, value, revision, expiry) VALUES (?1, ?2, ?3, ?4)",
    "DELETE FROM records WHERE key = ?1",
    "DELETE FROM records WHERE expiry <= ?1",
    "SELECT revision, time FROM state",
    "UPDATE state SET revision = ?1, time = ?2",
};
constexpr const char* kSchema =
    "CREATE TABLE IF NOT EXISTS records (key BLOB PRIMARY KEY, value BLOB NOT NULL, revision INTEGER NOT NULL,"
    "  expiry INTEGER NOT NULL) WITHOUT ROWID;"
    "CREATE INDEX IF NOT EXISTS expiring ON records (expiry) WHERE expiry < 9223372036854775807;"
    "CREATE TABLE IF NOT EXISTS state (one INTEGER PRIMARY KEY CHECK (one = 1), revision INTEGER, time INTEGER);"
    "INSERT OR IGNORE INTO state VALUES (1, 0, 0);"
    "PRAGMA user_version = 1;";
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

struct State {
  int64_t revision = 0;
  int64_t time = 0;  ///< the store's clock when it was last saved
};

class SqliteStore final : public Store {
 public:
  SqliteStore(Connection connection, const StoreContext& context)
      : clock_(context.clock), log_(context.log, "store"), connection_(std::move(connection)) {}

  /// Saves how far the clock has come, so that a restart does not give records more time than a crash would.
  ~SqliteStore() override {
    std::lock_guard lock(mutex_);
    if (auto saved = save_time(); !saved) log_.debug("time not saved: {}", saved.error().message);
  }

  Result<void> prepare() {
    for (size_t i = 0; i < kStatementCount; ++i) {
      statements_[i] = TOWLINE_TRY(Statement::prepare(connection_, kSql[i]));
    }
    const State state = TOWLINE_TRY(read_state());
    offset_ = state.time - ticks();
    return {};
  }

  Result<std::optional<Record>> find(const Key& key, Deadline deadline) override {
    TOWLINE_TRY(internal::check_key(key));
    return unless_busy<std::optional<Record>>("find", deadline, [&] { return find_once(key); });
  }
  Result<RecordPage> list(const KeyPrefix& prefix, const PageToken& token, Deadline deadline) override {
    TOWLINE_TRY(internal::check_prefix(prefix));
    TOWLINE_TRY(internal::check_prefix(token));
    return unless_busy<RecordPage>("list", deadline, [&] { return list_once(prefix, token); });
  }
  Result<Revision> commit(std::span<const Condition> conditions, std::span<const Write> writes,
                          Deadline deadline) override {
    TOWLINE_TRY(internal::check_commit(conditions, writes));
    return unless_busy<Revision>("commit", deadline, [&] { return commit_once(conditions, writes); });
  }

 private:
  /// Tries until another process lets go of the file. Our mutex is not held over the pause.
  template <typename T, typename Action>
  Result<T> unless_busy(std::string_view what, Deadline deadline, const Action& action) {
    for (Nanoseconds pause = kBusyPauseMin;; pause = std::min(2 * pause, kBusyPauseMax)) {
      TOWLINE_TRY(internal::check_deadline(clock_, deadline, what));
      {
        std::lock_guard lock(mutex_);
        Result<T> result = action();
        if (result || !is_busy(result.error())) return result;
        if (deadline_after(clock_, pause) >= deadline)
          return Error{Code::kUnavailable, Scope::kEndpoint, result.error().message};
      }
      sleep_until(clock_, deadline_after(clock_, pause));
    }
  }

  int64_t ticks() const { return clock_.now().time_since_epoch().count(); }

  /// The store's clock. Never behind what another process has saved.
  int64_t store_time(int64_t saved) {
    offset_ = std::max(offset_, saved - ticks());
    return offset_ + ticks();
  }

  Result<State> read_state() {
    Statement& statement = statements_[kReadState];
    const ResetOnExit reset(statement);
    if (!TOWLINE_TRY(statement.step(connection_, "read its state"))) {
      return fail(Code::kDataLoss, Scope::kEndpoint, "store file '{}': no state row", connection_.path());
    }
    return State{statement.integer(0), statement.integer(1)};
  }

  Result<void> write_state(const State& state) {
    Statement& statement = statements_[kWriteState];
    const ResetOnExit reset(statement);
    TOWLINE_TRY(statement.bind(1, state.revision).bind(2, state.time).step(connection_, "write its state"));
    return {};
  }

  static std::optional<Nanoseconds> time_left(int64_t expiry, int64_t now) {
    return expiry == kNever ? std::nullopt : std::optional(Nanoseconds(expiry - now));
  }

  Result<std::optional<Record>> find_once(const Key& key) {
    const int64_t now = store_time(TOWLINE_TRY(read_state()).time);
    Statement& statement = statements_[kFind];
    const ResetOnExit reset(statement);
    statement.bind_blob(1, std::as_bytes(std::span(key))).bind(2, now);
    if (!TOWLINE_TRY(statement.step(connection_, "read a record"))) return std::optional<Record>();
    return std::optional(Record{key, statement.blob(0), static_cast<Revision>(statement.integer(1)),
                                time_left(statement.integer(2), now)});
  }

  /// The token is the last key of the page before; a key and a NUL byte is the least text after that key.
  Result<RecordPage> list_once(const KeyPrefix& prefix, const PageToken& token) {
    const int64_t now = store_time(TOWLINE_TRY(read_state()).time);
    const std::string from = std::max(prefix, token.empty() ? token : token + '\0');
    Statement& statement = statements_[kList];
    const ResetOnExit reset(statement);
    statement.bind_blob(1, std::as_bytes(std::span(from))).bind(2, now);
    RecordPage page;
    size_t bytes = 0;
    while (TOWLINE_TRY(statement.step(connection_, "list records"))) {
      std::string key = statement.text(0);
      if (key.compare(0, prefix.size(), prefix) != 0) break;
      if (page.records.size() == kPageRecordsMax || bytes >= kPageBytesMax) {
        page.next = page.records.back().key;
        break;
      }
      page.records.push_back({std::move(key), statement.blob(1), static_cast<Revision>(statement.integer(2)),
                              time_left(statement.integer(3), now)});
      bytes += page.records.back().value.size();
    }
    return page;
  }

  Result<Revision> commit_once(std::span<const Condition> conditions, std::span<const Write> writes) {
    Transaction transaction(connection_);
    TOWLINE_TRY(transaction.begin("BEGIN IMMEDIATE"));
    State state = TOWLINE_TRY(read_state());
    state.time = store_time(state.time);
    for (const auto& condition : conditions) TOWLINE_TRY(check(condition));
    if (writes.empty()) return static_cast<Revision>(state.revision);
    ++state.revision;
    for (const auto& write : writes) TOWLINE_TRY(apply(write, state));
    TOWLINE_TRY(erase_expired(state.time));
    TOWLINE_TRY(write_state(state));
    TOWLINE_TRY(transaction.commit());
    return static_cast<Revision>(state.revision);
  }

  Result<void> check(const Condition& condition) {
    const auto record = TOWLINE_TRY(find_once(condition.key));
    const Revision present = record ? record->revision : 0;
    if (present != condition.revision) return internal::condition_failed(condition, present);
    return {};
  }

  Result<void> apply(const Write& write, const State& state) {
    Statement& statement = statements_[write.value ? kPut : kErase];
    const ResetOnExit reset(statement);
    statement.bind_blob(1, std::as_bytes(std::span(write.key)));
    if (write.value) {
      const bool expires = write.time_to_live && write.time_to_live->count() < kNever - state.time;
      statement.bind_blob(2, *write.value)
          .bind(3, state.revision)
          .bind(4, expires ? state.time + write.time_to_live->count() : kNever);
    }
    TOWLINE_TRY(statement.step(connection_, "write a record"));
    return {};
  }

  Result<void> erase_expired(int64_t now) {
    Statement& statement = statements_[kEraseExpired];
    const ResetOnExit reset(statement);
    TOWLINE_TRY(statement.bind(1, now).step(connection_, "erase expired records"));
    return {};
  }

  Result<void> save_time() {
    Transaction transaction(connection_);
    TOWLINE_TRY(transaction.begin("BEGIN IMMEDIATE"));
    State state = TOWLINE_TRY(read_state());
    state.time = store_time(state.time);
    TOWLINE_TRY(write_state(state));
    return transaction.commit();
  }

  Clock& clock_;
  Logger log_;
  std::mutex mutex_;       // guards all below
  Connection connection_;  // closed after its statements
  std::array<Statement, kStatementCount> statements_;
  int64_t offset_ = 0;  // from the clock's ticks to the store's time
};

Result<void> check_version(Connection& connection) {
  auto statement = TOWLINE_TRY(Statement::prepare(connection, "PRAGMA user_version"));
  TOWLINE_TRY(statement.step(connection, "read its version"));
  const int64_t version = statement.integer(0);
  if (version > kFormatVersion) {
    return fail(Code::kFailedPrecondition, Scope::kEndpoint,
                "store file '{}': format version {}, this program knows up to {}; use the program that made it",
                connection.path(), version, kFormatVersion);
  }
  return {};
}

Result<void> create_schema(Connection& connection) {
  // FULL: a committed revision is a fencing token, it must not come again after a power cut.
  TOWLINE_TRY(connection.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"));
  Transaction transaction(connection);
  TOWLINE_TRY(transaction.begin("BEGIN IMMEDIATE"));
  TOWLINE_TRY(connection.execute(kSchema));
  return transaction.commit();
}

/// While the file is made, SQLite's own wait is enough: nobody else holds it for long.
Result<void> set_up(Connection& connection) {
  const auto busy_ms = std::chrono::duration_cast<std::chrono::milliseconds>(kOpenBusyMax).count();
  sqlite3_busy_timeout(connection.get(), static_cast<int>(busy_ms));
  TOWLINE_TRY(check_version(connection));
  TOWLINE_TRY(create_schema(connection));
  sqlite3_busy_timeout(connection.get(), 0);
  return {};
}

}  // namespace

Result<std::unique_ptr<Store>> open_sqlite_store(std::string_view path, const StoreContext& context) {
  if (path.empty()) return fail(Code::kInvalidArgument, "store 'sqlite:': no path; write sqlite:PATH");
  const std::string file(path);
  sqlite3* raw = nullptr;
  constexpr int kFlags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;  // the store has a mutex
  const int result = sqlite3_open_v2(file.c_str(), &raw, kFlags, nullptr);
  Connection connection(Database(raw), file);
  if (result != SQLITE_OK) {
    return fail(sqlite_code(result), Scope::kEndpoint,
                "store file '{}': cannot open: {}; its folder must exist and be writable", file,
                raw == nullptr ? sqlite3_errstr(result) : sqlite3_errmsg(raw));
  }
  TOWLINE_TRY(set_up(connection));
  auto store = std::make_unique<SqliteStore>(std::move(connection), context);
  TOWLINE_TRY(store->prepare());
  Logger(context.log, "store").debug("opened file {}", file);
  return store;
}

}  // namespace towline::control
