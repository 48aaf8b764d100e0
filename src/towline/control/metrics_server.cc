#include "towline/control/metrics_server.h"

#include <fcntl.h>
#include <httplib.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <mutex>
#include <set>

#include "towline/control/internal/endpoint.h"
#include "towline/control/prometheus_metrics.h"

namespace towline::control {
namespace {

constexpr int kBacklog = 64;

/// One accepted socket as httplib reads and writes it: at most so many bytes come in, and all is over at the deadline,
/// however slowly the other side drips. Whoever shuts the socket down ends it at once.
class Connection final : public httplib::Stream {
 public:
  Connection(int handle, const Clock& clock, Deadline deadline, size_t bytes_max)
      : handle_(handle), clock_(clock), deadline_(deadline), bytes_left_(bytes_max) {}

  bool is_readable() const override { return begin_ < end_ || wait_for(POLLIN); }
  bool is_writable() const override { return wait_for(POLLOUT); }

  ssize_t read(char* into, size_t size) override {
    if (begin_ == end_ && !fill()) return -1;
    const size_t count = std::min(size, end_ - begin_);
    std::copy_n(buffer_.data() + begin_, count, into);
    begin_ += count;
    return static_cast<ssize_t>(count);
  }

  ssize_t write(const char* from, size_t size) override {
    size_t done = 0;
    while (done < size) {
      if (!wait_for(POLLOUT)) return -1;
      const ssize_t sent = send(handle_, from + done, size - done, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno != EAGAIN && errno != EINTR) return -1;
      done += static_cast<size_t>(std::max<ssize_t>(sent, 0));
    }
    return static_cast<ssize_t>(done);
  }

  /// Throws away what came and was not asked for: closing on it would reset the connection, answer and all.
  void discard_rest() {
    while (bytes_left_ > 0 && recv(handle_, buffer_.data(), buffer_.size(), MSG_DONTWAIT) > 0)
      bytes_left_ -= std::min(bytes_left_, buffer_.size());
  }

  // For access logs, which there are none of.
  void get_remote_ip_and_port(std::string& /*ip*/, int& /*port*/) const override {}
  void get_local_ip_and_port(std::string& /*ip*/, int& /*port*/) const override {}
  socket_t socket() const override { return handle_; }

 private:
  bool fill() {
    const size_t wanted = std::min(buffer_.size(), bytes_left_);
    while (wanted > 0 && wait_for(POLLIN)) {
      const ssize_t got = recv(handle_, buffer_.data(), wanted, MSG_DONTWAIT);
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
      if (got <= 0) return false;
      begin_ = 0;
      end_ = static_cast<size_t>(got);
      bytes_left_ -= end_;
      return true;
    }
    return false;
  }

  /// False at the deadline. True also when the socket was shut down: the call that follows says so.
  bool wait_for(short events) const {
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - clock_.now()).count();
      if (left <= 0) return false;
      pollfd wait{.fd = handle_, .events = events, .revents = 0};
      const int ready = poll(&wait, 1, static_cast<int>(left));
      if (ready > 0) return true;
      if (ready < 0 && errno != EINTR) return false;
    }
  }

  int handle_;
  const Clock& clock_;
  Deadline deadline_;
  size_t bytes_left_;
  std::array<char, 2048> buffer_;
  size_t begin_ = 0;  // unread: [begin_, end_) of buffer_
  size_t end_ = 0;
};

/// httplib's threads behind a bounded queue: when it is full, whoever accepts connections waits.
class Workers final : public httplib::TaskQueue {
 public:
  Workers(size_t threads, size_t waiting_max, Clock& clock) : pool_(threads), left_(waiting_max), clock_(clock) {}

  void enqueue(std::function<void()> job) override {
    while (!take_place()) clock_.wait(freed_, seen_, kNoDeadline);
    pool_.enqueue([this, job = std::move(job)] {
      job();
      std::lock_guard lock(mutex_);
      ++left_;
      freed_.notify();
    });
  }
  void shutdown() override { pool_.shutdown(); }

 private:
  bool take_place() {
    std::lock_guard lock(mutex_);
    seen_ = freed_.count();
    if (left_ == 0) return false;
    --left_;
    return true;
  }

  httplib::ThreadPool pool_;
  std::mutex mutex_;
  size_t left_;        // guarded by mutex_
  uint64_t seen_ = 0;  // of the accepting thread
  Signal freed_;
  Clock& clock_;
};

/// httplib with sockets of our own: its timeouts are per read and its destructor waits for clients, and neither will
/// do.
class Endpoint final : public httplib::Server {
 public:
  Endpoint(const MetricsServerOptions& options, std::function<std::string()> text, Clock& clock)
      : options_(options), text_(std::move(text)), clock_(clock) {
    new_task_queue = [this] { return new Workers(options_.threads, options_.waiting_max, clock_); };
    set_payload_max_length(options_.request_bytes_max);
    // Not httplib's default, with which two servers would share a port unnoticed.
    set_socket_options([](socket_t handle) {
      const int one = 1;
      setsockopt(handle, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    });
    // Before its own routing, which runs regular expressions over what a stranger sent.
    set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      answer(request, response);
      return HandlerResponse::Handled;
    });
  }
  ~Endpoint() override {
    if (listener_ >= 0) close(listener_);
  }

  bool bind(internal::Endpoint& endpoint) {
    if (endpoint.port != 0) {
      if (!bind_to_port(endpoint.host, endpoint.port)) return false;
    } else {
      const int port = bind_to_any_port(endpoint.host);
      if (port <= 0) return false;
      endpoint.port = static_cast<uint16_t>(port);
    }
    listener_ = svr_sock_;
    fcntl(listener_, F_SETFD, FD_CLOEXEC);
    ::listen(listener_, kBacklog);  // httplib's queue is so short that a few scrapers at once wait for a second SYN
    return true;
  }

  /// Ends accepting and every connection. The accepting thread and the workers are then on their way out.
  void stop_now() {
    std::lock_guard lock(mutex_);
    stopped_ = true;
    svr_sock_ = INVALID_SOCKET;
    shutdown(listener_, SHUT_RDWR);
    for (const int handle : connections_) shutdown(handle, SHUT_RDWR);
  }

 private:
  bool process_and_close_socket(socket_t handle) override {
    const bool is_open = adopt(handle);
    bool closed = false, done = false;
    if (is_open) {
      Connection connection(handle, clock_, deadline_after(clock_, options_.request_time), options_.request_bytes_max);
      const auto forget_ranges = [](httplib::Request& request) { request.ranges.clear(); };
      done = process_request(connection, true, closed, forget_ranges);
      connection.discard_rest();
    }
    release(handle);
    return done;
  }

  bool adopt(int handle) {
    fcntl(handle, F_SETFD, FD_CLOEXEC);
    std::lock_guard lock(mutex_);
    if (!stopped_) connections_.insert(handle);
    return !stopped_;
  }

  void release(int handle) {
    std::lock_guard lock(mutex_);
    connections_.erase(handle);
    shutdown(handle, SHUT_RDWR);
    close(handle);  // under the lock: stop_now() never sees a number that is somebody else's by then
  }

  void answer(const httplib::Request& request, httplib::Response& response) const {
    const bool is_read = request.method == "GET" || request.method == "HEAD";
    if (!is_read) return refuse(response, 405, "only GET is answered here\n");
    if (request.path == "/metrics") return response.set_content(text_(), std::string(kPrometheusTextType));
    if (request.path == "/healthz") return response.set_content("ok\n", "text/plain");
    refuse(response, 404, "there are /metrics and /healthz\n");
  }

  static void refuse(httplib::Response& response, int status, const char* text) {
    response.status = status;
    response.set_content(text, "text/plain");
    if (status == 405) response.set_header("Allow", "GET, HEAD");
  }

  MetricsServerOptions options_;
  std::function<std::string()> text_;
  Clock& clock_;
  int listener_ = -1;
  std::mutex mutex_;
  bool stopped_ = false;       // guarded by mutex_
  std::set<int> connections_;  // guarded by mutex_
};

/// Every httplib server makes the process ignore SIGPIPE. Ours sends without it, so the process keeps what it had.
std::unique_ptr<Endpoint> make_endpoint(const MetricsServerOptions& options, std::function<std::string()> text,
                                        Clock& clock) {
  struct sigaction before;
  sigaction(SIGPIPE, nullptr, &before);
  auto endpoint = std::make_unique<Endpoint>(options, std::move(text), clock);
  sigaction(SIGPIPE, &before, nullptr);
  return endpoint;
}

Error cannot_listen(const internal::Endpoint& endpoint) {
  Error error = internal::listen_failure(endpoint);
  if (error.code == Code::kInvalidArgument) error.code = Code::kFailedPrecondition;
  error.message = "metrics: " + error.message;
  return error;
}

}  // namespace

struct MetricsServer::State {
  std::string address;
  std::unique_ptr<Endpoint> endpoint;
  Task accepting;

  ~State() {
    if (endpoint == nullptr) return;
    endpoint->stop_now();
    accepting.join();
  }
};

MetricsServer::MetricsServer(std::unique_ptr<State> state) : state_(std::move(state)) {}
MetricsServer::~MetricsServer() = default;
const std::string& MetricsServer::address() const { return state_->address; }

Result<std::unique_ptr<MetricsServer>> MetricsServer::start(const MetricsServerOptions& options,
                                                            std::function<std::string()> text, Clock& clock,
                                                            LogSink& log) {
  internal::Endpoint endpoint = TOWLINE_TRY(internal::parse_endpoint(options.listen, "metrics address"));
  auto served = make_endpoint(options, std::move(text), clock);
  if (!served->bind(endpoint)) return cannot_listen(endpoint);
  auto state = std::make_unique<State>();
  state->address = internal::to_string(endpoint);
  state->endpoint = std::move(served);
  state->accepting =
      clock.spawn("metrics", [raw = state->endpoint.get()](std::stop_token) { raw->listen_after_bind(); });
  Logger(log, "metrics").info("http://{}/metrics", state->address);
  return std::unique_ptr<MetricsServer>(new MetricsServer(std::move(state)));
}

}  // namespace towline::control
