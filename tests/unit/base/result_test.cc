#include "towline/base/result.h"

#include <cerrno>
#include <memory>

namespace towline {
namespace {

Error not_found() { return fail(Code::kNotFound, "tensor '{}': no such name", "w"); }

Result<int> half(int value) {
  if (value % 2 != 0) return fail(Code::kInvalidArgument, "{} is odd", value);
  return value / 2;
}
Result<int> quarter(int value) { return half(TOWLINE_TRY(half(value))); }
Result<void> both(int a, int b) {
  static_cast<void>(TOWLINE_TRY(half(a)));
  static_cast<void>(TOWLINE_TRY(half(b)));
  return {};
}
Result<std::unique_ptr<int>> boxed(bool ok) {
  if (!ok) return not_found();
  return std::make_unique<int>(7);
}
Result<int> unboxed(bool ok) { return *TOWLINE_TRY(boxed(ok)); }

struct Base {
  virtual ~Base() = default;
};
struct Derived : Base {};
Result<std::unique_ptr<Base>> derived() { return std::make_unique<Derived>(); }

TEST(Result, HoldsAValueOrAnError) {
  EXPECT_TRUE(half(4).has_value());
  EXPECT_EQ(*half(4), 2);
  EXPECT_FALSE(half(3));
  EXPECT_EQ(half(3).error().code, Code::kInvalidArgument);
  EXPECT_EQ(half(3).error().message, "3 is odd");
  EXPECT_EQ(half(3).value_or(-1), -1);
  EXPECT_EQ(half(4).value_or(-1), 2);
}

TEST(Result, OfVoidIsDoneUnlessItFailed) {
  EXPECT_TRUE(Result<void>().has_value());
  EXPECT_EQ(Result<void>(not_found()).error(), not_found());
}

TEST(Result, ConvertsFromWhatConvertsToTheValue) {
  EXPECT_NE(*derived(), nullptr);
  const Result<std::string> text = "literal";
  EXPECT_EQ(*text, "literal");
}

TEST(Try, GivesTheValueOrReturnsTheFirstError) {
  EXPECT_EQ(*quarter(8), 2);
  EXPECT_EQ(quarter(6).error().message, "3 is odd");
  EXPECT_TRUE(both(2, 4).has_value());
  EXPECT_EQ(both(2, 5).error().message, "5 is odd");
  EXPECT_EQ(both(7, 5).error().message, "7 is odd");
}

TEST(Try, MovesWhatCannotBeCopied) {
  EXPECT_EQ(*unboxed(true), 7);
  EXPECT_EQ(unboxed(false).error(), not_found());
}

TEST(ResultDeathTest, TakingTheValueOfAnErrorSaysTheError) {
  EXPECT_DEATH(static_cast<void>(half(3).value()), "invalid_argument: 3 is odd");
  EXPECT_DEATH(Result<void>(not_found()).value(), "not_found: tensor 'w'");
}

TEST(CheckDeathTest, SaysTheConditionAndTheValues) {
  EXPECT_DEATH(TOWLINE_CHECK(1 > 2, "left", 1), "check failed: 1 > 2: left, 1");
}

TEST(Error, PrintsItsCodeAndMessage) { EXPECT_EQ(to_string(not_found()), "not_found: tensor 'w': no such name"); }

TEST(Error, CarriesAScopeWhenToldTo) {
  EXPECT_EQ(fail(Code::kUnavailable, Scope::kEndpoint, "peer").scope, Scope::kEndpoint);
  EXPECT_EQ(not_found().scope, Scope::kOperation);
  EXPECT_EQ(scope_name(Scope::kDevice), "device");
}

// The numbers are gRPC's and cross the wire.
TEST(Code, HasTheNumbersOfTheCanonicalSet) {
  EXPECT_EQ(static_cast<int>(Code::kCancelled), 1);
  EXPECT_EQ(static_cast<int>(Code::kUnauthenticated), 16);
  std::map<std::string, int> names;
  for (int code = 1; code <= 16; ++code) ++names[std::string(code_name(static_cast<Code>(code)))];
  EXPECT_EQ(names.size(), 16u);
  EXPECT_EQ(code_name(Code::kDataLoss), "data_loss");
}

TEST(Errno, TextIsLowerCaseAndKeepsTheNumber) {
  EXPECT_EQ(errno_text(ENOSPC), "no space left on device (28)");
  EXPECT_THAT(errno_text(99999), ::testing::HasSubstr("(99999)"));
}

TEST(Errno, CodeSaysWhatTheCallerCanDo) {
  EXPECT_EQ(errno_code(ENOENT), Code::kNotFound);
  EXPECT_EQ(errno_code(ENOSPC), Code::kResourceExhausted);
  EXPECT_EQ(errno_code(EIO), Code::kDataLoss);
  EXPECT_EQ(errno_code(ECONNRESET), Code::kUnavailable);
  EXPECT_EQ(errno_code(0), Code::kUnknown);
}

}  // namespace
}  // namespace towline
