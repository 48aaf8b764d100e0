// The endpoint over real sockets of the loopback.
#include "towline/control/metrics_server.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <array>

#include "support/exposition.h"
#include "support/http_client.h"
#include "towline/control/prometheus_metrics.h"

namespace towline::control {
namespace {

using std::chrono::seconds;
using testing::http;
using testing::http_body;
using testing::http_get;
using testing::parse_exposition;
using testing::RawClient;

constexpr std::array kLabels = {MetricLabel{"model", {}, "unknown"}};
constexpr MetricFamily kLoads{"loads_total", "Loads.", MetricKind::kCounter, kLabels};

class MetricsServerTest : public ::testing::Test {
 protected:
  Result<std::unique_ptr<MetricsServer>> start(MetricsServerOptions options) {
    return MetricsServer::start(
        options, [this] { return metrics_.text(); }, *clock_, null_log());
  }
  std::unique_ptr<MetricsServer> serve(MetricsServerOptions options = {}) {
    options.listen = "127.0.0.1:0";
    return start(options).value();
  }

  std::unique_ptr<Clock> clock_ = make_system_clock();
  PrometheusMetrics metrics_{{.version = "1", .scheme = "s"}};
};

TEST_F(MetricsServerTest, AnswersAScrapeWithEverythingRecordedSoFar) {
  const auto server = serve();
  const std::string before = http_get(server->address(), "/metrics");
  EXPECT_EQ(before.rfind("HTTP/1.1 200 OK\r\n", 0), 0u) << before;
  EXPECT_NE(before.find("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), std::string::npos) << before;
  EXPECT_EQ(http_body(before), metrics_.text());
  for (int i = 0; i < 3; ++i) count(metrics_, kLoads, {"llama"});
  const testing::Series expected = {{R"(loads_total{model="llama",scheme="s"})", 3},
                                    {R"(mx_build_info{component="client",scheme="s",version="1"})", 1}};
  EXPECT_EQ(parse_exposition(http_body(http_get(server->address(), "/metrics"))), expected);
  EXPECT_EQ(parse_exposition(http_body(http_get(server->address(), "/metrics?debug=1"))), expected);
}

TEST_F(MetricsServerTest, SaysThatItLives) {
  const auto server = serve();
  EXPECT_EQ(http_body(http_get(server->address(), "/healthz")), "ok\n");
  const std::string head = http(server->address(), "HEAD /healthz HTTP/1.0\r\n\r\n");
  EXPECT_EQ(head.find(" 200 OK\r\n"), 8u) << head;
  EXPECT_EQ(http_body(head), "");
}

TEST_F(MetricsServerTest, AnswersNothingElse) {
  const auto server = serve();
  const auto status = [&](const std::string& request) {
    const std::string response = http(server->address(), request);
    return response.substr(0, response.find("\r\n"));
  };
  EXPECT_EQ(status("GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 404 Not Found");
  EXPECT_EQ(status("GET /metrics/../healthz HTTP/1.1\r\n\r\n"), "HTTP/1.1 404 Not Found");
  EXPECT_EQ(status("POST /metrics HTTP/1.1\r\nContent-Length: 0\r\n\r\n"), "HTTP/1.1 405 Method Not Allowed");
  EXPECT_EQ(status("POST /metrics HTTP/1.1\r\nContent-Length: 5000\r\n\r\n" + std::string(5000, 'x')),
            "HTTP/1.1 405 Method Not Allowed");
  EXPECT_EQ(status("nonsense\r\n\r\n"), "HTTP/1.1 400 Bad Request");
  EXPECT_EQ(status("GET /metrics HTTP/1.1\r\nRange: bytes=0-1\r\n\r\n"), "HTTP/1.1 200 OK");
}

TEST_F(MetricsServerTest, ReadsNoMoreThanARequestMayHave) {
  const auto server = serve();
  for (const std::string& endless :
       {std::string(1u << 20, 'a'), "GET /" + std::string(1u << 20, 'a') + " HTTP/1.1\r\n\r\n",
        "GET /metrics HTTP/1.1\r\nX: " + std::string(1u << 20, 'a') + "\r\n\r\n"}) {
    const std::string response = http(server->address(), endless);
    EXPECT_EQ(response.find(" 200 "), std::string::npos) << response.substr(0, 100);
  }
  std::string headers;
  for (int i = 0; i < 5000; ++i) headers += "X-" + std::to_string(i) + ": y\r\n";
  const std::string many = http(server->address(), "GET /metrics HTTP/1.1\r\n" + headers + "\r\n");
  EXPECT_EQ(many.find(" 200 "), std::string::npos) << many.substr(0, 100);
  EXPECT_EQ(http_body(http_get(server->address(), "/healthz")), "ok\n") << "and serves on";
}

TEST_F(MetricsServerTest, GivesUpOnWhoeverIsSlowAndServesTheNext) {
  const auto server = serve({.threads = 1, .request_time = std::chrono::milliseconds(100)});
  RawClient silent(server->address()), half(server->address());
  ASSERT_TRUE(half.send("GET /met"));
  EXPECT_EQ(http_body(http_get(server->address(), "/healthz")), "ok\n");
  EXPECT_EQ(silent.read_all().find(" 200 "), std::string::npos);
  EXPECT_EQ(half.read_all().find(" 200 "), std::string::npos);
}

TEST_F(MetricsServerTest, ServesMoreClientsThanItHasPlacesFor) {
  const auto server = serve({.threads = 2, .waiting_max = 2});
  constexpr size_t kClients = 24;
  std::atomic<size_t> served = 0;
  std::vector<Task> tasks;
  for (size_t i = 0; i < kClients; ++i)
    tasks.push_back(clock_->spawn(
        "scrape", [&](std::stop_token) { served += http_body(http_get(server->address(), "/healthz")) == "ok\n"; }));
  for (Task& task : tasks) task.join();
  EXPECT_EQ(served, kClients);
}

TEST_F(MetricsServerTest, StopsAtOnceWhateverClientsDo) {
  constexpr size_t kClients = 12;  // more than threads and places together
  auto server = serve({.request_time = std::chrono::hours(1)});
  std::vector<std::unique_ptr<RawClient>> clients;
  for (size_t i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<RawClient>(server->address()));
    if (i % 2 == 0) {
      ASSERT_TRUE(clients.back()->send("GET /metrics HTTP/1.1\r\nX: "));
    }
  }
  const std::string address = server->address();
  const TimePoint before = clock_->now();
  server.reset();
  EXPECT_LT(clock_->now() - before, seconds(10)) << "an hour was not waited for";
  EXPECT_FALSE(RawClient(address).connected());
}

TEST_F(MetricsServerTest, StopsRightAfterItsStart) {
  for (int i = 0; i < 50; ++i) serve().reset();
}

TEST_F(MetricsServerTest, GivesItsPortBack) {
  auto server = serve();
  const std::string address = server->address();
  EXPECT_EQ(http_body(http_get(address, "/healthz")), "ok\n");
  server.reset();
  server = start({.listen = address}).value();
  EXPECT_EQ(server->address(), address);
  EXPECT_EQ(http_body(http_get(address, "/healthz")), "ok\n");
}

TEST_F(MetricsServerTest, AnAddressInUseIsNamedWithTheNextStep) {
  const auto server = serve();
  const auto second = start({.listen = server->address()});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kFailedPrecondition);
  const std::string port = server->address().substr(server->address().rfind(':') + 1);
  EXPECT_EQ(second.error().message,
            fmt::format("metrics: cannot listen on {}: port {} is in use; stop who uses it, or choose another port (0: "
                        "any free one)",
                        server->address(), port));
  EXPECT_EQ(http_body(http_get(server->address(), "/healthz")), "ok\n") << "the first one serves on";
}

TEST_F(MetricsServerTest, TellsAnAddressThatCannotBeFromOneThatIsNotHere) {
  for (const char* text : {"", "9400", "127.0.0.1", ":1", "127.0.0.1:x", "::1:80"}) {
    const auto started = start({.listen = text});
    ASSERT_FALSE(started) << text;
    EXPECT_EQ(started.error().code, Code::kInvalidArgument);
    EXPECT_EQ(started.error().message,
              fmt::format("metrics address '{}': not HOST:PORT; write it like 127.0.0.1:9310", text));
  }
  const auto elsewhere = start({.listen = "192.0.2.1:0"});
  EXPECT_EQ(elsewhere.error().code, Code::kFailedPrecondition);
  EXPECT_EQ(elsewhere.error().message, "metrics: cannot listen on 192.0.2.1:0: not an address of this machine");
}

TEST_F(MetricsServerTest, LeavesTheProcessItsSignals) {
  const auto server = serve();
  struct sigaction now;
  ASSERT_EQ(sigaction(SIGPIPE, nullptr, &now), 0);
  EXPECT_NE(now.sa_handler, SIG_IGN);
}

}  // namespace
}  // namespace towline::control
