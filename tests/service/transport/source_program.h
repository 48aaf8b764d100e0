#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <memory>
#include <string>

#include "towline/transport/transport.h"
#include "towline/transport/wait.h"

namespace towline::transport::service {

/// Which transports UCX may use, and where the source's memory comes from.
struct Setting {
  std::string name;
  std::string transports;  ///< UCX_TLS; empty: all
  bool segments = false;   ///< memory that peers map; else malloc'ed
  friend std::ostream& operator<<(std::ostream& out, const Setting& setting) { return out << setting.name; }
};

/// An agent with one registered region. Not movable: the clock lies within.
class LocalAgent {
 public:
  LocalAgent(const std::string& name, const Setting& setting, Bytes bytes);

  Clock& clock() { return *clock_; }
  Transport& transport() { return *transport_; }
  std::span<uint64_t> words() {
    return {reinterpret_cast<uint64_t*>(region_->host_view()), region_->bytes() / Bytes(8)};
  }
  const device::MemoryRegionPtr& region() const { return region_; }

 private:
  const std::unique_ptr<Clock> clock_ = make_system_clock();
  std::unique_ptr<Transport> transport_;
  device::MemoryRegionPtr region_;
  std::unique_ptr<Registration> registration_;
};

/// What word `index` of a source's memory holds at first.
constexpr uint64_t source_word(uint64_t index) { return (index + 1) * 0x9E3779B97F4A7C15ULL; }

/// A process of its own (this program again) that serves `bytes` of known words. Killed by the destructor.
class SourceProgram {
 public:
  SourceProgram(const Setting& setting, Bytes bytes);
  SourceProgram(const SourceProgram&) = delete;
  SourceProgram& operator=(const SourceProgram&) = delete;
  ~SourceProgram();

  const Blob& metadata() const { return metadata_; }
  Address address() const { return address_; }
  pid_t pid() const { return pid_; }
  void signal(int number) const;
  /// Asks it to end well, and waits until it has.
  void finish();

 private:
  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  Blob metadata_;
  Address address_;
};

/// Why `ucx` cannot be opened here; empty: it can.
std::string why_unavailable();

}  // namespace towline::transport::service
