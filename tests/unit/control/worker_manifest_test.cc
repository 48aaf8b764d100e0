#include "towline/control/worker_manifest.h"

#include <gtest/gtest.h>

namespace towline::control {
namespace {

Code code(const Result<void>& result) { return result ? Code::kUnknown : result.error().code; }

WorkerManifest held() {
  WorkerManifest manifest;
  manifest.source_id = "s";
  manifest.worker_id = "w";
  return manifest;
}

TEST(CheckQuery, TakesItsOwnIdsAndAbsentOnes) {
  EXPECT_TRUE(check_query(held(), {"s", "w"}));
  EXPECT_TRUE(check_query(held(), {"s", std::nullopt}));
  EXPECT_TRUE(check_query(held(), {"", "w"}));
  EXPECT_TRUE(check_query(held(), {"", std::nullopt}));
}

TEST(CheckQuery, RefusesOtherIds) {
  EXPECT_EQ(code(check_query(held(), {"t", "w"})), Code::kFailedPrecondition);
  EXPECT_EQ(code(check_query(held(), {"s", "v"})), Code::kFailedPrecondition);
  EXPECT_EQ(code(check_query(held(), {"s", ""})), Code::kFailedPrecondition);
}

TEST(CheckQuery, RefusesAnyIdBeforePublication) {
  EXPECT_EQ(code(check_query({}, {"s", std::nullopt})), Code::kFailedPrecondition);
  EXPECT_EQ(code(check_query({}, {"", "w"})), Code::kFailedPrecondition);
  EXPECT_TRUE(check_query({}, {"", std::nullopt}));
}

TEST(CheckReply, TakesAReplyWithoutAWorkerId) {
  auto reply = held();
  reply.worker_id.reset();
  EXPECT_TRUE(check_reply({"s", "w"}, reply));
}

TEST(CheckReply, RefusesAnotherSourceOrWorker) {
  EXPECT_TRUE(check_reply({"s", "w"}, held()));
  EXPECT_EQ(code(check_reply({"t", "w"}, held())), Code::kFailedPrecondition);
  EXPECT_EQ(code(check_reply({"s", "v"}, held())), Code::kFailedPrecondition);
}

}  // namespace
}  // namespace towline::control
