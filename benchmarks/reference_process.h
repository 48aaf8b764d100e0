#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "towline/base/result.h"

namespace towline::benchmarks {

/// The Python package safetensors in a process of its own, which times what it is told to. Owner thread.
class ReferenceProcess {
 public:
  /// Starts `python` (a command and its arguments) on our script.
  /// Errors: kUnavailable - no such interpreter, or it lacks safetensors or torch: which.
  static Result<ReferenceProcess> start(const std::vector<std::string>& python);
  ReferenceProcess(ReferenceProcess&& other) noexcept;
  ReferenceProcess& operator=(ReferenceProcess&&) = delete;
  ~ReferenceProcess();

  /// `safetensors 0.8.0, torch 1.13.0`
  const std::string& version() const { return version_; }
  /// Opens the file and lists its names. Seconds.
  Result<double> open(const std::string& path) { return measure("open", path); }
  /// Copies every tensor into new memory, which is freed afterwards. Seconds.
  Result<double> load(const std::string& path) { return measure("load", path); }
  /// Copies every tensor into memory that an earlier reload has made (the first one is not timed). Seconds.
  Result<double> reload(const std::string& path) { return measure("reload", path); }
  /// Makes the memory of reload.
  Result<double> prepare(const std::string& path) { return measure("prepare", path); }

 private:
  ReferenceProcess(pid_t pid, int to, int from) : pid_(pid), to_(to), from_(from) {}
  Result<double> measure(const std::string& verb, const std::string& path);
  Result<std::string> read_line();

  pid_t pid_;
  int to_;
  int from_;
  std::string version_;
};

}  // namespace towline::benchmarks
