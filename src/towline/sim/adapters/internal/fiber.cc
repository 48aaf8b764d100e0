#include "towline/sim/adapters/internal/fiber.h"

// The raw contexts rather than boost::context::fiber: its entry function returns when the body ends, on a stack that
// the thread sanitizer has just been told we left. Ours never returns, so its frames are simply dropped.
#include <boost/context/detail/fcontext.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>

#include "towline/base/check.h"

#if defined(__SANITIZE_ADDRESS__)
#define TOWLINE_ASAN_FIBERS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TOWLINE_ASAN_FIBERS 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define TOWLINE_TSAN_FIBERS 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TOWLINE_TSAN_FIBERS 1
#endif
#endif

#ifdef TOWLINE_ASAN_FIBERS
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef TOWLINE_TSAN_FIBERS
#include <sanitizer/tsan_interface.h>
#endif

namespace towline::sim {
namespace {

namespace context = boost::context;

/// One side of a switch, as the sanitizers know it. Without them it is empty.
class Announced {
 public:
#ifdef TOWLINE_TSAN_FIBERS
  void create() { tsan_ = __tsan_create_fiber(0); }
  void destroy() { __tsan_destroy_fiber(tsan_); }
  void adopt_current() { tsan_ = __tsan_get_current_fiber(); }
#else
  void create() {}
  void destroy() {}
  void adopt_current() {}
#endif
  void set_stack([[maybe_unused]] const void* bottom, [[maybe_unused]] size_t bytes) {
#ifdef TOWLINE_ASAN_FIBERS
    bottom_ = bottom;
    bytes_ = bytes;
#endif
  }

  /// Before the stack's memory is given back: the dropped frames' red zones would stay with the addresses, and whoever
  /// maps them next would be accused.
  void forget_stack() const {
#ifdef TOWLINE_ASAN_FIBERS
    __asan_unpoison_memory_region(bottom_, bytes_);
#endif
  }

  /// Last thing before `from` jumps to this one; `ends`: it will not come back.
  void entering([[maybe_unused]] Announced& from, [[maybe_unused]] bool ends) const {
#ifdef TOWLINE_ASAN_FIBERS
    __sanitizer_start_switch_fiber(ends ? nullptr : &from.fake_stack_, bottom_, bytes_);
#endif
#ifdef TOWLINE_TSAN_FIBERS
    __tsan_switch_to_fiber(tsan_, 0);
#endif
  }
  /// First thing after `from` jumped to this one.
  void entered([[maybe_unused]] Announced& from) {
#ifdef TOWLINE_ASAN_FIBERS
    __sanitizer_finish_switch_fiber(fake_stack_, &from.bottom_, &from.bytes_);
#endif
  }

 private:
#ifdef TOWLINE_ASAN_FIBERS
  const void* bottom_ = nullptr;
  size_t bytes_ = 0;
  void* fake_stack_ = nullptr;
#endif
#ifdef TOWLINE_TSAN_FIBERS
  void* tsan_ = nullptr;
#endif
};

}  // namespace

struct Fiber::State {
  State(Bytes stack_bytes, std::function<void()> run) : allocator(stack_bytes.size()), body(std::move(run)) {
    stack = allocator.allocate();
    inside.create();
    inside.set_stack(static_cast<std::byte*>(stack.sp) - stack.size, stack.size);
    fiber = context::detail::make_fcontext(stack.sp, stack.size, &State::enter);
  }
  ~State() {
    inside.destroy();
    inside.forget_stack();
    allocator.deallocate(stack);
  }

  static void enter(context::detail::transfer_t transfer) noexcept {
    auto* self = static_cast<State*>(transfer.data);
    self->inside.entered(self->outside);
    self->resumer = transfer.fctx;
    self->run_body();
    self->finished = true;
    self->outside.entering(self->inside, true);
    context::detail::jump_fcontext(self->resumer, nullptr);
    __builtin_unreachable();
  }

  /// Whatever the body owns is gone when it returns.
  void run_body() {
    const std::function<void()> run = std::move(body);
    body = nullptr;
    run();
  }

  context::protected_fixedsize_stack allocator;
  context::stack_context stack;
  std::function<void()> body;
  context::detail::fcontext_t fiber = nullptr;    // where to resume; while it is suspended
  context::detail::fcontext_t resumer = nullptr;  // where to go back to; while it runs
  bool finished = false;
  Announced inside;
  Announced outside;
};

Fiber::Fiber(Bytes stack_bytes, std::function<void()> body)
    : state_(std::make_unique<State>(stack_bytes, std::move(body))) {}

Fiber::~Fiber() { TOWLINE_CHECK(state_->finished); }

void Fiber::resume() {
  State& state = *state_;
  TOWLINE_CHECK(!state.finished);
  state.outside.adopt_current();
  state.inside.entering(state.outside, false);
  const context::detail::transfer_t back = context::detail::jump_fcontext(state.fiber, &state);
  state.outside.entered(state.inside);
  state.fiber = back.fctx;
}

void Fiber::suspend() {
  State& state = *state_;
  state.outside.entering(state.inside, false);
  const context::detail::transfer_t back = context::detail::jump_fcontext(state.resumer, nullptr);
  state.inside.entered(state.outside);
  state.resumer = back.fctx;
}

bool Fiber::finished() const { return state_->finished; }

}  // namespace towline::sim
