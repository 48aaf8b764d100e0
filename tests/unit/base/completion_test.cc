#include "towline/base/completion.h"

#include <thread>

namespace towline {
namespace {

Error late() { return fail(Code::kDeadlineExceeded, "late"); }

TEST(Completion, GoesFromPendingToDoneWithWhatItMoved) {
  CompletionSource source(2);
  const Completion completion = source.completion();
  EXPECT_EQ(completion.phase(), Phase::kPending);
  EXPECT_FALSE(completion.settled());
  source.set_moved(1, Bytes(7));
  EXPECT_TRUE(source.finish({}));
  EXPECT_EQ(completion.phase(), Phase::kDone);
  EXPECT_EQ(completion.moved(0), Bytes(0));
  EXPECT_EQ(completion.moved(1), Bytes(7));
  EXPECT_EQ(completion.signal().count(), 1u);
}

TEST(Completion, FirstEndWins) {
  CompletionSource source(0);
  EXPECT_TRUE(source.finish(late()));
  EXPECT_FALSE(source.finish({}));
  EXPECT_FALSE(source.unsettle(late()));
  EXPECT_EQ(source.completion().phase(), Phase::kFailed);
  EXPECT_EQ(source.completion().error(), late());
  EXPECT_EQ(source.completion().signal().count(), 1u);
}

TEST(Completion, UnsettledKeepsItsFirstErrorUntilItSettles) {
  CompletionSource source(0);
  const Completion completion = source.completion();
  EXPECT_TRUE(source.unsettle(late()));
  EXPECT_EQ(completion.phase(), Phase::kUnsettled);
  EXPECT_FALSE(completion.settled());
  EXPECT_TRUE(source.finish(fail(Code::kUnavailable, "gone")));
  EXPECT_EQ(completion.phase(), Phase::kFailed);
  EXPECT_EQ(completion.error(), late());
  EXPECT_EQ(completion.signal().count(), 2u);
}

TEST(Completion, UnsettledMayStillEndWell) {
  CompletionSource source(0);
  source.unsettle(late());
  EXPECT_TRUE(source.finish({}));
  EXPECT_EQ(source.completion().phase(), Phase::kDone);
}

TEST(Completion, HoldsItsMemoryUntilItSettles) {
  auto memory = std::make_shared<int>(1);
  CompletionSource source(0, {memory});
  const Completion completion = source.completion();
  source.unsettle(late());
  EXPECT_EQ(memory.use_count(), 2);
  source.finish({});
  EXPECT_EQ(memory.use_count(), 1);
}

TEST(Completion, OfADroppedSourceFails) {
  Completion completion;
  {
    CompletionSource source(0);
    completion = source.completion();
  }
  EXPECT_EQ(completion.phase(), Phase::kFailed);
  EXPECT_EQ(completion.error().code, Code::kInternal);
}

TEST(Completion, OfAnOverwrittenSourceFailsAndTheNewOneLives) {
  CompletionSource source(0);
  const Completion first = source.completion();
  source = CompletionSource(0);
  EXPECT_EQ(first.phase(), Phase::kFailed);
  EXPECT_EQ(source.completion().phase(), Phase::kPending);
}

TEST(Completion, CancelRunsTheActionOnceAndNotAfterTheEnd) {
  int calls = 0;
  CompletionSource source(0);
  Completion completion = source.completion();
  source.on_cancel([&] { ++calls; });
  completion.cancel();
  completion.cancel();
  EXPECT_EQ(calls, 1);

  CompletionSource ended(0);
  ended.on_cancel([&] { ++calls; });
  ended.finish({});
  ended.completion().cancel();
  EXPECT_EQ(calls, 1);
}

TEST(Completion, MayEndItselfFromItsCancelAction) {
  CompletionSource source(0);
  source.on_cancel([&] { source.finish(fail(Code::kCancelled, "given up")); });
  source.completion().cancel();
  EXPECT_EQ(source.completion().error().code, Code::kCancelled);
}

TEST(Completed, IsOneThatHasEnded) {
  EXPECT_EQ(completed({}, {Bytes(3)}).moved(0), Bytes(3));
  EXPECT_EQ(completed(late()).error(), late());
}

TEST(Await, ReturnsTheOperationsOwnOutcome) {
  const auto clock = make_system_clock();
  EXPECT_TRUE(await(*clock, completed({}), kNoDeadline, "x"));
  EXPECT_EQ(await(*clock, completed(late()), kNoDeadline, "x").error(), late());
}

TEST(Await, NamesWhatDidNotCompleteByTheDeadline) {
  const auto clock = make_system_clock();
  CompletionSource source(0);
  const auto result = await(*clock, source.completion(), clock->now(), "read of slab 3");
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Code::kDeadlineExceeded);
  EXPECT_THAT(result.error().message, ::testing::StartsWith("read of slab 3"));
  EXPECT_EQ(source.completion().phase(), Phase::kPending);
}

TEST(CompletionDeathTest, ReadingAnErrorOfAPendingOrDoneOneIsABug) {
  CompletionSource source(0);
  EXPECT_DEATH(static_cast<void>(source.completion().error()), "check failed");
  source.finish({});
  EXPECT_DEATH(static_cast<void>(source.completion().error()), "check failed");
}

// The writer's bytes are not atomic: only the release and acquire of the phase order them. Run under tsan.
TEST(CompletionRace, ReadersSeeWhatWasWrittenBeforeTheEnd) {
  const auto clock = make_system_clock();
  for (int round = 0; round < 300; ++round) {
    int payload = 0;
    CompletionSource source(1);
    const Completion completion = source.completion();
    Task writer = clock->spawn("writer", [&](std::stop_token) {
      payload = round + 1;
      source.set_moved(0, Bytes(4));
      source.finish({});
    });
    ASSERT_TRUE(await(*clock, completion, kNoDeadline, "write"));
    ASSERT_EQ(payload, round + 1);
    ASSERT_EQ(completion.moved(0), Bytes(4));
  }
}

TEST(CompletionRace, ExactlyOneOfManyEndsWins) {
  const auto clock = make_system_clock();
  for (int round = 0; round < 200; ++round) {
    CompletionSource source(0);
    std::atomic<int> winners{0};
    std::vector<Task> tasks;
    tasks.push_back(clock->spawn("done", [&](std::stop_token) { winners += source.finish({}); }));
    tasks.push_back(clock->spawn("failed", [&](std::stop_token) { winners += source.finish(late()); }));
    tasks.push_back(clock->spawn("unsettled", [&](std::stop_token) { source.unsettle(late()); }));
    tasks.clear();
    ASSERT_EQ(winners, 1);
    ASSERT_TRUE(source.completion().settled());
  }
}

TEST(CompletionRace, CancelMeetsTheEnd) {
  const auto clock = make_system_clock();
  for (int round = 0; round < 300; ++round) {
    auto source = std::make_shared<CompletionSource>(0);
    Completion completion = source->completion();
    std::atomic<int> cancels{0};
    source->on_cancel([&cancels, weak = std::weak_ptr(source)] {
      ++cancels;
      if (const auto held = weak.lock()) held->finish(fail(Code::kCancelled, "given up"));
    });
    Task canceller = clock->spawn("cancel", [&](std::stop_token) { completion.cancel(); });
    source->finish({});
    canceller.join();
    ASSERT_TRUE(completion.settled());
    ASSERT_LE(cancels, 1);
  }
}

// It may change from unsettled, and from pending, to done between two looks.
TEST(Completion, AwaitingOneThatEndsMeanwhileGivesItsResult) {
  const auto clock = make_system_clock();
  for (int round = 0; round < 2000; ++round) {
    CompletionSource source(0);
    const Completion completion = source.completion();
    std::thread finisher([&source] { source.finish({}); });
    EXPECT_TRUE(await(*clock, completion, kNoDeadline, "it"));
    finisher.join();
  }
}

TEST(Completion, HasAResultWhenItHasEnded) {
  CompletionSource source(0);
  const Completion completion = source.completion();
  EXPECT_FALSE(completion.result());
  source.unsettle(fail(Code::kDeadlineExceeded, "late"));
  EXPECT_EQ(completion.result()->error().message, "late");
  source.finish({});
  EXPECT_TRUE(completion.result()->has_value());
}

}  // namespace
}  // namespace towline
