#pragma once

#include <functional>
#include <memory>

#include "towline/base/bytes.h"

namespace towline::sim {

/// A body with a stack of its own, below which lies a guard page. Runs on the thread that resumes it, one at a time.
/// Announces its switches to the address and thread sanitizers. A body that throws ends the process.
class Fiber {
 public:
  Fiber(Bytes stack_bytes, std::function<void()> body);
  /// It has finished: what lies on an abandoned stack would never be destroyed.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// From outside: runs the body until it suspends or returns.
  void resume();
  /// From the body: goes back to who resumed it.
  void suspend();
  bool finished() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace towline::sim
