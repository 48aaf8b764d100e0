#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "contract/control/manual_clock.h"
#include "towline/base/hash.h"
#include "towline/base/log.h"
#include "towline/control/store.h"
#include "towline/control/stores/faulty.h"

namespace towline::control {

/// One store under test and what it lives on. reopen() closes it and opens it again where that keeps the records.
class StoreFixture {
 public:
  virtual ~StoreFixture() = default;
  virtual Store& store() = 0;
  /// False: this kind forgets.
  virtual bool reopen() = 0;
};
struct StoreFactory {
  std::string name;
  std::function<std::unique_ptr<StoreFixture>(Clock&)> make;
};

inline Blob blob(std::string_view text) {
  const auto bytes = as_bytes(text);
  return Blob(bytes.begin(), bytes.end());
}

inline std::string store_name(const ::testing::TestParamInfo<StoreFactory>& info) { return info.param.name; }

/// A folder of its own, gone with it.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "towline-XXXXXX").string();
    TOWLINE_CHECK(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::string text() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

class MemoryFixture final : public StoreFixture {
 public:
  explicit MemoryFixture(Clock& clock) : store_(open_store("memory:", {clock, null_log()}).value()) {}
  Store& store() override { return *store_; }
  bool reopen() override { return false; }

 private:
  std::unique_ptr<Store> store_;
};

class SqliteFixture final : public StoreFixture {
 public:
  explicit SqliteFixture(Clock& clock) : clock_(clock) { open(); }
  Store& store() override { return *store_; }
  bool reopen() override {
    store_.reset();
    open();
    return true;
  }

 private:
  void open() { store_ = open_store("sqlite:" + folder_.file("store.db"), {clock_, null_log()}).value(); }
  Clock& clock_;
  ScratchFolder folder_;
  std::unique_ptr<Store> store_;
};

class FaultyFixture final : public StoreFixture {
 public:
  explicit FaultyFixture(Clock& clock) : inner_(clock), store_(inner_.store(), clock) {}
  Store& store() override { return store_; }
  bool reopen() override { return false; }

 private:
  MemoryFixture inner_;
  FaultyStore store_;
};

template <typename Fixture>
StoreFactory store_factory(std::string name) {
  return {std::move(name), [](Clock& clock) { return std::make_unique<Fixture>(clock); }};
}

}  // namespace towline::control
