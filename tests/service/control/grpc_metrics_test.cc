// What one metadata server says of the calls it answered, scraped over a real socket.
#include <gtest/gtest.h>

// As in grpc_test.cc: gRPC and protobuf are not instrumented.
#ifdef __SANITIZE_THREAD__

TEST(GrpcMetrics, DoNotRunUnderTheThreadSanitizer) { GTEST_SKIP() << "gRPC and protobuf are not instrumented"; }

#else

#include <grpcpp/grpcpp.h>
#include <p2p.grpc.pb.h>

#include "support/exposition.h"
#include "support/http_client.h"
#include "towline/control/client.h"
#include "towline/control/metrics_server.h"
#include "towline/control/prometheus_metrics.h"
#include "towline/control/server.h"
#include "towline/control/stores/metered.h"
#include "unit/control/control_bench.h"

namespace towline::control {
namespace {

namespace wire = model_express::p2p;

/// Of no agent: the client does not ask whose record it is before it publishes.
WorkerRecord anonymous() {
  WorkerRecord worker = worker_of(0);
  worker.agent_name.clear();
  return worker;
}

class GrpcMetrics : public ::testing::Test {
 protected:
  Deadline soon() { return deadline_after(*clock_, std::chrono::seconds(20)); }
  std::unique_ptr<MetadataServer> serve() {
    ServerOptions options;
    options.metrics = &metrics_;
    return MetadataServer::start(options, service_, *clock_, null_log()).value();
  }
  std::unique_ptr<Metadata> connect() {
    ClientOptions options;
    options.server = server_->address();
    options.publish_tries = 1;
    return open_metadata_client(options, *clock_, null_log()).value();
  }
  /// Of one family, those that are not zero.
  testing::Series scrape(const std::string& family) {
    testing::Series found;
    const std::string page = testing::http_body(testing::http_get(endpoint_->address(), "/metrics"));
    for (const auto& [name, value] : testing::parse_exposition(page))
      if (name.rfind(family + "{", 0) == 0 && value != 0) found.emplace(name, value);
    return found;
  }
  void break_store(Code code, uint64_t calls) {
    StoreFault fault;
    fault.count = calls;
    fault.error = Error{code, Scope::kEndpoint, "as told"};
    faulty_.inject(fault);
  }

  void delay_store(Nanoseconds delay) {
    StoreFault slow;
    slow.kind = StoreFaultKind::kDelay;
    slow.delay = delay;
    faulty_.inject(slow);
  }

  std::unique_ptr<Clock> clock_ = make_system_clock();
  PrometheusMetrics metrics_{{.component = "server", .version = "1", .scheme = "s", .backend = "memory"}};
  std::unique_ptr<Store> records_ = make_memory_store(*clock_);
  FaultyStore faulty_{*records_, *clock_};
  MeteredStore store_{faulty_, *clock_, metrics_};
  MetadataService service_{store_, [] { return int64_t{1'700'000'000'000}; }, null_log()};
  std::unique_ptr<MetadataServer> server_ = serve();
  std::unique_ptr<MetricsServer> endpoint_ =
      MetricsServer::start(
          {.listen = "127.0.0.1:0"}, [this] { return metrics_.text(); }, *clock_, null_log())
          .value();
  std::unique_ptr<Metadata> client_ = connect();
};

TEST_F(GrpcMetrics, CountEveryCallOnceByMethodAndOutcome) {
  const auto source = client_->publish(identity_of("m"), anonymous(), "a", soon()).value();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(client_->list({}, soon()));
  ASSERT_TRUE(client_->get(source.source_id, "a", soon()));
  ASSERT_FALSE(client_->get(source.source_id, "absent", soon()));
  ASSERT_TRUE(client_->update_status(source.source_id, "a", Rank(0), SourceStatus::kReady, soon()));
  ASSERT_FALSE(client_->update_status(source.source_id, "absent", Rank(0), SourceStatus::kReady, soon()));
  ASSERT_FALSE(client_->publish(identity_of(""), anonymous(), "a", soon()));
  break_store(Code::kUnavailable, 1);
  ASSERT_FALSE(client_->list({}, soon()));
  break_store(Code::kInternal, 1);
  ASSERT_FALSE(client_->publish(identity_of("m"), anonymous(), "a", soon()));
  const testing::Series expected = {
      {R"(mx_grpc_requests_total{method="GetMetadata",outcome="not_found",scheme="s"})", 1},
      {R"(mx_grpc_requests_total{method="GetMetadata",outcome="ok",scheme="s"})", 1},
      {R"(mx_grpc_requests_total{method="ListSources",outcome="backend_error",scheme="s"})", 1},
      {R"(mx_grpc_requests_total{method="ListSources",outcome="ok",scheme="s"})", 3},
      {R"(mx_grpc_requests_total{method="PublishMetadata",outcome="error",scheme="s"})", 1},
      {R"(mx_grpc_requests_total{method="PublishMetadata",outcome="invalid_argument",scheme="s"})", 1},
      {R"(mx_grpc_requests_total{method="PublishMetadata",outcome="ok",scheme="s"})", 1},
      {R"(mx_grpc_requests_total{method="UpdateStatus",outcome="not_found",scheme="s"})", 1},
      {R"(mx_grpc_requests_total{method="UpdateStatus",outcome="ok",scheme="s"})", 1}};
  EXPECT_EQ(scrape("mx_grpc_requests_total"), expected);
  const testing::Series timed = {{R"(mx_grpc_request_seconds_count{method="GetMetadata",scheme="s"})", 2},
                                 {R"(mx_grpc_request_seconds_count{method="ListSources",scheme="s"})", 4},
                                 {R"(mx_grpc_request_seconds_count{method="PublishMetadata",scheme="s"})", 3},
                                 {R"(mx_grpc_request_seconds_count{method="UpdateStatus",scheme="s"})", 2}};
  EXPECT_EQ(scrape("mx_grpc_request_seconds_count"), timed);
  EXPECT_EQ(scrape("mx_grpc_requests_in_flight"), testing::Series());
}

TEST_F(GrpcMetrics, CountWhatTheStoreWasAskedFor) {
  ASSERT_TRUE(client_->publish(identity_of("m"), anonymous(), "a", soon()));
  ASSERT_TRUE(client_->list({}, soon()));
  break_store(Code::kUnavailable, 1);
  ASSERT_FALSE(client_->list({}, soon()));
  const testing::Series expected = {{R"(mx_backend_ops_total{op="commit",result="ok",scheme="s",store="p2p"})", 1},
                                    {R"(mx_backend_ops_total{op="list",result="error",scheme="s",store="p2p"})", 1},
                                    {R"(mx_backend_ops_total{op="list",result="ok",scheme="s",store="p2p"})", 1}};
  EXPECT_EQ(scrape("mx_backend_ops_total"), expected);
}

TEST_F(GrpcMetrics, AStoreTooSlowForTheCallerIsTheStoresFault) {
  delay_store(std::chrono::seconds(2));
  ASSERT_FALSE(client_->list({}, deadline_after(*clock_, std::chrono::milliseconds(100))));
  server_.reset();  // ends the call on the server's side too
  const testing::Series expected = {
      {R"(mx_grpc_requests_total{method="ListSources",outcome="backend_error",scheme="s"})", 1}};
  EXPECT_EQ(scrape("mx_grpc_requests_total"), expected);
}

TEST_F(GrpcMetrics, ACallerThatHungUpIsNobodysFault) {
  delay_store(std::chrono::milliseconds(500));
  const auto stub =
      wire::P2pService::NewStub(grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  Task call = clock_->spawn("call", [&](std::stop_token) {
    wire::ListSourcesResponse response;
    EXPECT_EQ(stub->ListSources(&context, {}, &response).error_code(), grpc::StatusCode::CANCELLED);
  });
  for (const Deadline deadline = soon(); faulty_.calls(StoreCall::kList) == 0 && clock_->now() < deadline;)
    sleep_until(*clock_, clock_->now() + std::chrono::milliseconds(1));
  context.TryCancel();
  call.join();
  server_.reset();
  const testing::Series expected = {
      {R"(mx_grpc_requests_total{method="ListSources",outcome="cancelled",scheme="s"})", 1}};
  EXPECT_EQ(scrape("mx_grpc_requests_total"), expected);
}

TEST_F(GrpcMetrics, AreThereBeforeTheFirstCall) {
  EXPECT_EQ(scrape("mx_build_info").size(), 1u);
  EXPECT_TRUE(scrape("mx_grpc_requests_total").empty());
}

}  // namespace
}  // namespace towline::control

#endif
