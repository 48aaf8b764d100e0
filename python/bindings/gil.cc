#include "gil.h"

#include <unistd.h>

#include <atomic>
#include <thread>

namespace towline::python {
namespace {

/// The interpreter is one a process, and so is its end.
std::atomic<std::thread::id> ending_thread;  ///< the default: nobody's
std::atomic<int> coming_back;                ///< threads that are between native code and the GIL

/// On the thread that ends the interpreter, with the GIL: those that are coming back get it first; later ones see that
/// they are too late.
void begin_end() {
  ending_thread = std::this_thread::get_id();
  PyThreadState* const state = PyEval_SaveThread();
  while (coming_back.load() > 0) std::this_thread::yield();
  PyEval_RestoreThread(state);
}

bool is_too_late() {
  const std::thread::id ending = ending_thread.load();
  return ending != std::thread::id() && ending != std::this_thread::get_id();
}

}  // namespace

ReleasedGil::~ReleasedGil() {
  if (state_ == nullptr) return;
  ++coming_back;
  if (is_too_late()) {
    --coming_back;
    for (;;) pause();
  }
  PyEval_RestoreThread(state_);
  --coming_back;
}

void bind_gil(nanobind::module_& /*module*/) {
  nanobind::module_::import_("atexit").attr("register")(nanobind::cpp_function(&begin_end));
}

}  // namespace towline::python
