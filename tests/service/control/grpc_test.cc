// Server, client and a worker's own endpoint over loopback sockets, and the view of a client that knows only the
// published protocol.
#include <gtest/gtest.h>

// gRPC and protobuf are not instrumented: the thread sanitizer does not see their locks and would report every call,
// and protobuf's messages have another layout under it. What is ours runs under it in
// tests/unit/control/concurrency_test.cc.
#ifdef __SANITIZE_THREAD__

TEST(GrpcTest, DoesNotRunUnderTheThreadSanitizer) { GTEST_SKIP() << "gRPC and protobuf are not instrumented"; }

#else

#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <p2p.grpc.pb.h>
#include <sys/socket.h>
#include <unistd.h>

#include "towline/control/client.h"
#include "towline/control/manifest_codec.h"
#include "towline/control/publisher.h"
#include "towline/control/reaper.h"
#include "towline/control/server.h"
#include "towline/control/source_id.h"
#include "unit/control/control_bench.h"

namespace towline::control {
namespace {

namespace wire = model_express::p2p;

/// A server on a free port over a store in memory, on real time.
class GrpcTest : public ::testing::Test {
 protected:
  Deadline soon() { return deadline_after(*clock_, std::chrono::seconds(20)); }
  std::unique_ptr<Metadata> connect(const std::string& address) {
    ClientOptions options;
    options.server = address;
    return open_metadata_client(options, *clock_, null_log()).value();
  }
  std::unique_ptr<wire::P2pService::Stub> foreign() {
    return wire::P2pService::NewStub(grpc::CreateChannel(server_->address(), grpc::InsecureChannelCredentials()));
  }

  std::unique_ptr<Clock> clock_ = make_system_clock();
  std::unique_ptr<Store> records_ = make_memory_store(*clock_);
  FaultyStore store_{*records_, *clock_};
  int64_t wall_ms_ = 1'700'000'000'000;
  MetadataService service_{store_, [this] { return wall_ms_; }, null_log()};
  std::unique_ptr<MetadataServer> server_ = MetadataServer::start({}, service_, *clock_, null_log()).value();
  std::unique_ptr<Metadata> client_ = connect(server_->address());
};

TEST_F(GrpcTest, CarriesAWholeRecordThereAndBack) {
  auto worker = worker_of(3);
  worker.chunk_bytes = MiB(8);
  worker.lease_endpoint = "10.0.0.1:7000";
  const auto source = client_->publish(identity_of("модель"), worker, "a", soon()).value();
  EXPECT_EQ(source.source_id, source_id(identity_of("модель")));
  ASSERT_TRUE(client_->update_status(source.source_id, "a", Rank(3), SourceStatus::kReady, soon()));
  const auto entry = client_->get(source.source_id, "a", soon()).value();
  EXPECT_EQ(entry.identity, identity_of("модель"));
  EXPECT_EQ(entry.worker.manifest, worker.manifest);  // shapes and digests too
  EXPECT_EQ(entry.worker.transport, "ucx");
  EXPECT_EQ(entry.worker.chunk_bytes, MiB(8));
  EXPECT_EQ(entry.worker.lease_endpoint, "10.0.0.1:7000");
  EXPECT_EQ(entry.worker.transport_metadata, worker.transport_metadata);
  EXPECT_EQ(entry.worker.status, SourceStatus::kReady);
  EXPECT_EQ(entry.worker.updated_at_ms, wall_ms_);
  SourceFilter filter;
  filter.status = SourceStatus::kReady;
  filter.identity = identity_of("модель");
  filter.rank = Rank(3);
  const auto refs = client_->list(filter, soon()).value();
  ASSERT_EQ(refs.size(), 1u);
  EXPECT_EQ(refs[0].worker_id, "a");
  EXPECT_EQ(refs[0].model_name, "модель");
  EXPECT_EQ(refs[0].accelerator, "cuda");
  EXPECT_EQ(refs[0].updated_at_ms, wall_ms_);
}

TEST_F(GrpcTest, KeepsTheCodesOfRefusals) {
  EXPECT_EQ(client_->publish(identity_of(""), worker_of(0), "a", soon()).error().code, Code::kInvalidArgument);
  EXPECT_EQ(client_->get("0000000000000000", "a", soon()).error().code, Code::kNotFound);
  EXPECT_EQ(client_->update_status("0000000000000000", "a", Rank(0), SourceStatus::kReady, soon()).error().code,
            Code::kNotFound);
}

TEST_F(GrpcTest, AnOutageOfTheStoreIsNotAnEmptyList) {
  StoreFault outage;
  outage.count = 1000;
  store_.inject(outage);
  EXPECT_EQ(client_->list({}, soon()).error().code, Code::kUnavailable);
  EXPECT_EQ(client_->get("0000000000000000", "a", soon()).error().code, Code::kUnavailable);
  wire::ListSourcesResponse response;
  grpc::ClientContext context;
  EXPECT_EQ(foreign()->ListSources(&context, {}, &response).error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(GrpcTest, PublishingOutlastsAShortOutage) {
  StoreFault outage;
  outage.call = StoreCall::kCommit;
  outage.count = 1;
  store_.inject(outage);
  EXPECT_TRUE(client_->publish(identity_of("m"), worker_of(0), "a", soon()));
  EXPECT_EQ(store_.calls(StoreCall::kCommit), 2u);
}

TEST_F(GrpcTest, RefusesARecordLargerThanAMessageBeforeSendingIt) {
  auto worker = worker_of(0);
  worker.transport_metadata.resize(101u << 20);
  const auto published = client_->publish(identity_of("m"), worker, "a", soon());
  EXPECT_EQ(published.error().code, Code::kResourceExhausted);
  EXPECT_NE(published.error().message.find("2 tensors"), std::string::npos) << published.error().message;
}

TEST_F(GrpcTest, CarriesAManifestOfTensOfThousandsOfTensors) {
  auto worker = worker_of(0);
  worker.manifest.clear();
  for (int i = 0; i < 30'000; ++i) {
    worker.manifest.push_back({fmt::format("model.layers.{}.mlp.experts.down_proj.weight", i), Address(1), Bytes(4),
                               DeviceOrdinal(0), "torch.bfloat16", tensor::Shape{2}, tensor::Digest{}});
  }
  const auto source = client_->publish(identity_of("m"), worker, "a", soon()).value();
  EXPECT_EQ(client_->get(source.source_id, "a", soon()).value().worker.manifest, worker.manifest);
}

// A client that knows only the published fields.
TEST_F(GrpcTest, AForeignClientReadsTheDescriptorsInBothFieldsAndNeedsNotOurs) {
  const auto source = client_->publish(identity_of("m"), worker_of(0), "a", soon()).value();
  wire::GetMetadataRequest request;
  request.set_mx_source_id(source.source_id);
  request.set_worker_id("a");
  wire::GetMetadataResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(foreign()->GetMetadata(&context, request, &response).ok());
  ASSERT_TRUE(response.found());
  const auto& worker = response.worker();
  ASSERT_EQ(worker.tensors_size(), 2);
  ASSERT_EQ(worker.tensor_source().tensors_size(), 2);
  for (const auto& tensor : {worker.tensors(0), worker.tensor_source().tensors(0)}) {
    EXPECT_EQ(tensor.name(), "w");
    EXPECT_EQ(tensor.addr(), 64u);
    EXPECT_EQ(tensor.size(), 12u);
    EXPECT_EQ(tensor.device_id(), 1u);
    EXPECT_EQ(tensor.dtype(), "torch.float32");
  }
  EXPECT_EQ(worker.nixl_metadata(), std::string(3, '\7'));
  EXPECT_EQ(response.identity().model_name(), "m");
  EXPECT_EQ(response.mx_source_id(), source.source_id);
  EXPECT_TRUE(decode_manifest(as_bytes(worker.towline_manifest())));
}

TEST_F(GrpcTest, AForeignWorkerIsServedWithWhatItWrote) {
  wire::PublishMetadataRequest request;
  request.mutable_identity()->set_model_name("m");
  request.set_worker_id("f");
  auto& worker = *request.mutable_worker();
  worker.set_nixl_metadata("agent");
  auto& tensor = *worker.add_tensors();  // an old writer: only the old field
  tensor.set_name("w");
  tensor.set_size(8);
  tensor.set_dtype("torch.float32");
  worker.GetReflection()->MutableUnknownFields(&worker)->AddLengthDelimited(11, "later field");
  wire::PublishMetadataResponse published;
  grpc::ClientContext first;
  ASSERT_TRUE(foreign()->PublishMetadata(&first, request, &published).ok());
  ASSERT_TRUE(published.success()) << published.message();

  const auto entry = client_->get(published.mx_source_id(), "f", soon()).value();
  EXPECT_EQ(entry.worker.transport, "nixl");
  ASSERT_EQ(entry.worker.manifest.size(), 1u);
  EXPECT_EQ(entry.worker.manifest[0].name, "w");
  EXPECT_FALSE(entry.worker.manifest[0].digest);

  wire::GetMetadataRequest get;
  get.set_mx_source_id(published.mx_source_id());
  get.set_worker_id("f");
  wire::GetMetadataResponse response;
  grpc::ClientContext second;
  ASSERT_TRUE(foreign()->GetMetadata(&second, get, &response).ok());
  EXPECT_EQ(response.worker().nixl_metadata(), "agent");
  EXPECT_EQ(response.worker().tensor_source().tensors_size(), 1);
  EXPECT_EQ(response.worker().towline_manifest(), "");
  const auto& unknown = response.worker().GetReflection()->GetUnknownFields(response.worker());
  ASSERT_EQ(unknown.field_count(), 1);
  EXPECT_EQ(unknown.field(0).length_delimited(), "later field");
}

TEST_F(GrpcTest, AnswersBadRequestsWithoutSuccess) {
  const auto stub = foreign();
  wire::PublishMetadataRequest no_worker;
  no_worker.mutable_identity()->set_model_name("m");
  no_worker.set_worker_id("a");
  wire::PublishMetadataResponse published;
  grpc::ClientContext first;
  ASSERT_TRUE(stub->PublishMetadata(&first, no_worker, &published).ok());
  EXPECT_FALSE(published.success());
  EXPECT_EQ(published.message(), "publish: no worker");

  wire::PublishMetadataRequest damaged = no_worker;
  damaged.mutable_worker()->set_towline_manifest("TWLM but not really");
  grpc::ClientContext second;
  ASSERT_TRUE(stub->PublishMetadata(&second, damaged, &published).ok());
  EXPECT_FALSE(published.success());
  EXPECT_EQ(published.message(), "publish: manifest: damaged: the checksum does not match");

  wire::UpdateStatusRequest unknown_status;
  unknown_status.set_mx_source_id("s");
  unknown_status.set_worker_id("a");
  unknown_status.set_status(static_cast<wire::SourceStatus>(9));
  wire::UpdateStatusResponse updated;
  grpc::ClientContext third;
  ASSERT_TRUE(stub->UpdateStatus(&third, unknown_status, &updated).ok());
  EXPECT_FALSE(updated.success());

  wire::GetMetadataResponse got;
  grpc::ClientContext fourth;
  ASSERT_TRUE(stub->GetMetadata(&fourth, {}, &got).ok());
  EXPECT_FALSE(got.found());
}

TEST_F(GrpcTest, AManifestThatContradictsItsDescriptorsIsRefused) {
  wire::PublishMetadataRequest request;
  request.mutable_identity()->set_model_name("m");
  request.set_worker_id("a");
  auto& worker = *request.mutable_worker();
  worker.mutable_tensor_source()->add_tensors()->set_name("other");
  const auto packed = encode_manifest({"ucx", worker_of(0).manifest}).value();
  worker.set_towline_manifest(std::string(reinterpret_cast<const char*>(packed.data()), packed.size()));
  wire::PublishMetadataResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(foreign()->PublishMetadata(&context, request, &response).ok());
  EXPECT_FALSE(response.success());
  EXPECT_NE(response.message().find("not the same"), std::string::npos) << response.message();
}

TEST_F(GrpcTest, AnInvalidStatusFilterIsNoFilter) {
  ASSERT_TRUE(client_->publish(identity_of("m"), worker_of(0), "a", soon()));
  wire::ListSourcesRequest request;
  request.set_status_filter(static_cast<wire::SourceStatus>(77));
  wire::ListSourcesResponse response;
  grpc::ClientContext context;
  ASSERT_TRUE(foreign()->ListSources(&context, request, &response).ok());
  EXPECT_EQ(response.instances_size(), 1);
}

TEST_F(GrpcTest, AnAbsentServerIsNamedWithTheNextStep) {
  const std::string address = server_->address();
  server_.reset();
  const auto listed = connect(address)->list({}, soon());
  ASSERT_FALSE(listed);
  EXPECT_EQ(listed.error().code, Code::kUnavailable);
  EXPECT_EQ(listed.error().message,
            fmt::format("metadata server at {}: connection refused; start one with `towlined --listen {}`", address,
                        address));
}

TEST_F(GrpcTest, PublishingToAnAbsentServerEndsAtTheDeadline) {
  const std::string address = server_->address();
  server_.reset();
  const TimePoint before = clock_->now();
  const auto published =
      connect(address)->publish(identity_of("m"), worker_of(0), "a", before + std::chrono::milliseconds(500));
  EXPECT_EQ(published.error().code, Code::kUnavailable);
  EXPECT_LT(clock_->now() - before, std::chrono::seconds(5));
}

TEST_F(GrpcTest, ADeadlineThatHasPassedSendsNothing) {
  const auto calls = store_.calls(StoreCall::kAny);
  EXPECT_EQ(client_->list({}, clock_->now()).error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(store_.calls(StoreCall::kAny), calls);
}

TEST_F(GrpcTest, AServerThatDoesNotAnswerInTimeIsADeadline) {
  StoreFault slow;
  slow.kind = StoreFaultKind::kDelay;
  slow.delay = std::chrono::seconds(2);
  store_.inject(slow);
  const auto listed = client_->list({}, clock_->now() + std::chrono::milliseconds(100));
  EXPECT_EQ(listed.error().code, Code::kDeadlineExceeded);
  EXPECT_NE(listed.error().message.find(server_->address()), std::string::npos) << listed.error().message;
}

/// Takes connections and never answers, as a process that is stopped does.
class SilentListener {
 public:
  SilentListener() : descriptor_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof address;
    EXPECT_EQ(::bind(descriptor_, reinterpret_cast<sockaddr*>(&address), bytes), 0);
    EXPECT_EQ(::listen(descriptor_, 16), 0);
    EXPECT_EQ(::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
    port_ = ntohs(address.sin_port);
  }
  ~SilentListener() { ::close(descriptor_); }
  std::string address() const { return fmt::format("127.0.0.1:{}", port_); }

 private:
  int descriptor_;
  uint16_t port_ = 0;
};

TEST_F(GrpcTest, AServerThatIsThereAndSilentIsWaitedForUntilTheDeadline) {
  const SilentListener silent;
  const TimePoint before = clock_->now();
  const auto listed = connect(silent.address())->list({}, before + std::chrono::milliseconds(900));
  EXPECT_GE(clock_->now() - before, std::chrono::milliseconds(850));
  EXPECT_EQ(listed.error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(listed.error().message,
            fmt::format("metadata server at {}: no answer in time; it may be stopped or overloaded: see its log",
                        silent.address()));
}

TEST_F(GrpcTest, TextThatIsNotUtf8IsRefusedBeforeItIsSent) {
  const std::string bad = "m\xff";
  const auto calls = store_.calls(StoreCall::kAny);
  SourceFilter filter;
  filter.model_name = bad;
  EXPECT_EQ(client_->list(filter, soon()).error().message, "model 'm\\xff': not UTF-8");
  EXPECT_EQ(client_->publish(identity_of(bad), worker_of(0), "a", soon()).error().code, Code::kInvalidArgument);
  EXPECT_EQ(client_->publish(identity_of("m"), worker_of(0), bad, soon()).error().code, Code::kInvalidArgument);
  EXPECT_EQ(client_->get("s", bad, soon()).error().code, Code::kInvalidArgument);
  EXPECT_EQ(client_->update_status("s", bad, Rank(0), SourceStatus::kReady, soon()).error().code,
            Code::kInvalidArgument);
  EXPECT_EQ(store_.calls(StoreCall::kAny), calls);
}

TEST_F(GrpcTest, AWorkersEndpointIsNotTakenForAMetadataServer) {
  const auto worker = WorkerServer::start({}, null_log()).value();
  const auto listed = connect(worker->address())->list({}, soon());
  EXPECT_EQ(listed.error().code, Code::kUnimplemented);
  EXPECT_EQ(listed.error().message,
            fmt::format("metadata server at {}: something else answers there; it is no metadata server (a worker's own "
                        "endpoint?): give the address that towlined printed",
                        worker->address()));
}

/// Two processes, as the server sees them.
class OwnershipTest : public GrpcTest {
 protected:
  static WorkerRecord record(const std::string& agent, const std::string& endpoint = {}) {
    WorkerRecord worker = worker_of(0);
    worker.agent_name = agent;
    worker.worker_grpc_endpoint = endpoint;
    return worker;
  }
  Result<void> beat(Metadata& client) {
    return client.update_status(source_id(identity_of("m")), "a", Rank(0), SourceStatus::kReady, soon());
  }
  std::string owner() { return client_->get(source_id(identity_of("m")), "a", soon()).value().worker.agent_name; }

  std::unique_ptr<Metadata> other_ = connect(server_->address());
};

TEST_F(OwnershipTest, ALiveWorkersIdIsNotGivenToAnotherProcess) {
  ASSERT_TRUE(client_->publish(identity_of("m"), record("one"), "a", soon()));
  ASSERT_TRUE(beat(*client_));
  const auto refused = other_->publish(identity_of("m"), record("two"), "a", soon());
  EXPECT_EQ(refused.error().code, Code::kAlreadyExists);
  EXPECT_EQ(refused.error().message,
            "worker id 'a': another process ('one') serves model 'm' under it; choose another, or stop that one first");
  EXPECT_EQ(owner(), "one");
  EXPECT_TRUE(client_->publish(identity_of("m"), record("one"), "a", soon())) << "its own, again";
  EXPECT_TRUE(other_->publish(identity_of("m"), record("two"), "b", soon()));
}

TEST_F(OwnershipTest, AnIdWhoseHeartbeatIsOverdueIsFree) {
  ASSERT_TRUE(client_->publish(identity_of("m"), record("one"), "a", soon()));
  ASSERT_TRUE(beat(*client_));
  wall_ms_ += 91'000;
  EXPECT_TRUE(other_->publish(identity_of("m"), record("two"), "a", soon()));
}

TEST_F(OwnershipTest, AnIdThatWasWithdrawnIsFree) {
  ASSERT_TRUE(client_->publish(identity_of("m"), record("one"), "a", soon()));
  ASSERT_TRUE(client_->update_status(source_id(identity_of("m")), "a", Rank(0), SourceStatus::kStale, soon()));
  EXPECT_TRUE(other_->publish(identity_of("m"), record("two"), "a", soon()));
}

TEST_F(OwnershipTest, AProcessThatIsGoneIsReplacedWithoutWaitingForItsHeartbeat) {
  auto worker = WorkerServer::start({}, null_log()).value();
  WorkerManifest manifest;
  manifest.source_id = source_id(identity_of("m"));
  manifest.worker_id = "a";
  ASSERT_TRUE(worker->serve(manifest));
  ASSERT_TRUE(client_->publish(identity_of("m"), record("one", worker->address()), "a", soon()));
  ASSERT_TRUE(beat(*client_));
  EXPECT_EQ(other_->publish(identity_of("m"), record("two"), "a", soon()).error().code, Code::kAlreadyExists);
  worker.reset();
  EXPECT_TRUE(other_->publish(identity_of("m"), record("two"), "a", soon()));
}

// A loopback address says nothing about a worker of another machine, where its port is another one's, or nobody's.
TEST_F(OwnershipTest, ALoopbackEndpointOfAFleetThatIsNotLocalTellsNothing) {
  const std::string gone = WorkerServer::start({}, null_log()).value()->address();
  ASSERT_TRUE(client_->publish(identity_of("m"), record("one", gone), "a", soon()));
  ASSERT_TRUE(beat(*client_));
  const std::string port = server_->address().substr(server_->address().rfind(':'));
  const auto remote = connect("0.0.0.0" + port);
  EXPECT_EQ(remote->publish(identity_of("m"), record("two"), "a", soon()).error().code, Code::kAlreadyExists);
  EXPECT_TRUE(other_->publish(identity_of("m"), record("two"), "a", soon()));
}

TEST_F(OwnershipTest, AProcessThatDoesNotAnswerIsAliveWhileItsHeartbeatIsFresh) {
  const SilentListener silent;
  ASSERT_TRUE(client_->publish(identity_of("m"), record("one", silent.address()), "a", soon()));
  ASSERT_TRUE(beat(*client_));
  EXPECT_EQ(other_->publish(identity_of("m"), record("two"), "a", soon()).error().code, Code::kAlreadyExists);
}

TEST_F(OwnershipTest, AHeartbeatForARecordThatAnotherHasTakenIsRefused) {
  ASSERT_TRUE(client_->publish(identity_of("m"), record("one"), "a", soon()));
  ASSERT_TRUE(other_->publish(identity_of("m"), record("two"), "a", soon()));  // neither was READY: a race
  const auto beaten = beat(*client_);
  EXPECT_EQ(beaten.error().code, Code::kAlreadyExists);
  EXPECT_NE(beaten.error().message.find("worker id 'a' of model 'm': another process ('two') has taken it over"),
            std::string::npos)
      << beaten.error().message;
  EXPECT_TRUE(beat(*other_));
  EXPECT_EQ(owner(), "two");
}

TEST_F(OwnershipTest, ARecordIsNotReadForEachHeartbeatButATakeoverIsSeenAtTheNext) {
  ASSERT_TRUE(client_->publish(identity_of("m"), record("one"), "a", soon()));
  ASSERT_TRUE(beat(*client_));
  const auto finds = store_.calls(StoreCall::kFind);
  ASSERT_TRUE(beat(*client_));
  EXPECT_EQ(store_.calls(StoreCall::kFind), finds + 1) << "its status";
  wall_ms_ += 91'000;
  ASSERT_TRUE(other_->publish(identity_of("m"), record("two"), "a", soon()));
  EXPECT_EQ(beat(*client_).error().code, Code::kAlreadyExists);
  EXPECT_TRUE(beat(*other_));
}

TEST_F(GrpcTest, TheClientFindsAServerThatCameBack) {
  ASSERT_TRUE(client_->list({}, soon()));
  ServerOptions same;
  same.listen = server_->address();
  server_.reset();
  EXPECT_EQ(client_->list({}, soon()).error().code, Code::kUnavailable);
  server_ = MetadataServer::start(same, service_, *clock_, null_log()).value();
  Result<std::vector<SourceRef> > listed = client_->list({}, soon());
  while (!listed && clock_->now() < soon()) {
    sleep_until(*clock_, clock_->now() + std::chrono::milliseconds(20));  // the channel waits before it tries again
    listed = client_->list({}, soon());
  }
  EXPECT_TRUE(listed);
}

TEST_F(GrpcTest, APortInUseIsNamed) {
  ServerOptions same;
  same.listen = server_->address();
  const auto second = MetadataServer::start(same, service_, *clock_, null_log());
  ASSERT_FALSE(second);
  const auto port = server_->address().substr(server_->address().rfind(':') + 1);
  EXPECT_EQ(second.error().code, Code::kFailedPrecondition);
  EXPECT_EQ(second.error().message,
            fmt::format("cannot listen on {}: port {} is in use; stop who uses it, or choose another port (0: any free "
                        "one)",
                        server_->address(), port));
}

TEST_F(GrpcTest, AddressesThatCannotBeAreRefused) {
  const auto message = [this](const std::string& listen) {
    ServerOptions options;
    options.listen = listen;
    const auto started = MetadataServer::start(options, service_, *clock_, null_log());
    return started ? std::string("started") : started.error().message;
  };
  for (const char* text : {"", "127.0.0.1", ":1", "127.0.0.1:", "127.0.0.1:65536", "::1:80", "127.0.0.1:-1", "h:1x"}) {
    EXPECT_EQ(message(text), fmt::format("listen address '{}': not HOST:PORT; write it like 127.0.0.1:9310", text));
  }
  EXPECT_EQ(message("192.0.2.1:0"), "cannot listen on 192.0.2.1:0: not an address of this machine");
  ClientOptions options;
  options.server = "nowhere";
  EXPECT_EQ(open_metadata_client(options, *clock_, null_log()).error().message,
            "metadata server 'nowhere': not HOST:PORT; write it like 127.0.0.1:9310");
}

std::string advertised(const std::string& listen, const std::string& advertise) {
  const auto worker = WorkerServer::start({.listen = listen, .advertise = advertise}, null_log());
  return worker ? (*worker)->address() : worker.error().message;
}

TEST(WorkerAddress, IsTheOneThatOthersAreTold) {
  EXPECT_TRUE(advertised("127.0.0.1:0", "").starts_with("127.0.0.1:"));
  EXPECT_TRUE(advertised("127.0.0.1:0", "node-7").starts_with("node-7:"));
  EXPECT_FALSE(advertised("127.0.0.1:0", "node-7").ends_with(":0"));
  EXPECT_EQ(advertised("127.0.0.1:0", "node-7:81"), "node-7:81");
  EXPECT_TRUE(advertised("127.0.0.1:0", "[fd00::1]").starts_with("[fd00::1]:"));
}

TEST(WorkerAddress, IsAskedForWhereItCannotBeKnown) {
  EXPECT_EQ(advertised("0.0.0.0:0", ""),
            "worker_listen '0.0.0.0:0': every address of this machine; say by which others reach it: set "
            "worker_advertise");
  for (const std::string text : {"0.0.0.0", "::1", "a:b"})
    EXPECT_EQ(advertised("127.0.0.1:0", text),
              fmt::format("worker_advertise '{}': no address that others could reach; write HOST or HOST:PORT", text));
}

class WorkerGrpcTest : public GrpcTest {
 protected:
  WorkerManifest manifest() {
    WorkerManifest out;
    out.source_id = "s";
    out.worker_id = "w";
    out.rank = Rank(5);
    out.transport = "ucx";
    out.agent_name = "agent";
    out.tensors = worker_of(0).manifest;
    return out;
  }
  Result<WorkerManifest> fetch(const ManifestQuery& query) {
    return fetch_manifest(worker_->address(), query, *clock_, soon());
  }
  std::unique_ptr<WorkerServer> worker_ = WorkerServer::start({}, null_log()).value();
};

TEST_F(WorkerGrpcTest, AnswersWithItsManifest) {
  ASSERT_TRUE(worker_->serve(manifest()));
  const auto fetched = fetch({"s", "w"}).value();
  EXPECT_EQ(fetched.tensors, manifest().tensors);
  EXPECT_EQ(fetched.transport, "ucx");
  EXPECT_EQ(fetched.rank, Rank(5));
  EXPECT_EQ(fetched.agent_name, "agent");
  EXPECT_EQ(fetched.worker_id, "w");
}

TEST_F(WorkerGrpcTest, RefusesIdsThatAreNotItsOwn) {
  EXPECT_EQ(fetch({"s", "w"}).error().code, Code::kFailedPrecondition);  // not published yet
  ASSERT_TRUE(worker_->serve(manifest()));
  EXPECT_EQ(fetch({"t", "w"}).error().code, Code::kFailedPrecondition);
  EXPECT_EQ(fetch({"s", "v"}).error().code, Code::kFailedPrecondition);
  EXPECT_TRUE(fetch({"s", std::nullopt}));
  EXPECT_TRUE(fetch({"", std::nullopt}));
}

TEST_F(WorkerGrpcTest, ServesTheNewestManifest) {
  ASSERT_TRUE(worker_->serve(manifest()));
  auto next = manifest();
  next.worker_id = "w2";
  next.tensors.pop_back();
  ASSERT_TRUE(worker_->serve(next));
  EXPECT_EQ(fetch({"s", "w2"}).value().tensors.size(), 1u);
  next.tensors.push_back(next.tensors.back());  // a name twice
  EXPECT_FALSE(worker_->serve(next));
  EXPECT_EQ(fetch({"s", "w2"}).value().tensors.size(), 1u);
}

TEST_F(WorkerGrpcTest, SaysThatItHasNoArtifacts) {
  const auto stub =
      wire::WorkerService::NewStub(grpc::CreateChannel(worker_->address(), grpc::InsecureChannelCredentials()));
  wire::GetArtifactManifestHeaderResponse response;
  grpc::ClientContext context;
  const auto status = stub->GetArtifactManifestHeader(&context, {}, &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(status.error_message(), "worker: this one serves tensors, no artifacts");
}

TEST_F(WorkerGrpcTest, AWorkerThatIsGoneIsUnavailable) {
  const std::string address = worker_->address();
  worker_.reset();
  const auto fetched = fetch_manifest(address, {"s", "w"}, *clock_, soon());
  EXPECT_EQ(fetched.error().code, Code::kUnavailable);
  EXPECT_EQ(fetched.error().message,
            fmt::format("worker at {}: connection refused; it is gone; list the sources again", address));
}

TEST_F(GrpcTest, APublisherKeepsItsWorkerListedOverTheWire) {
  PublisherHooks hooks;
  hooks.record = []() -> Result<WorkerRecord> { return worker_of(0); };
  PublisherOptions options;
  options.interval = std::chrono::milliseconds(20);
  Publisher publisher(*client_, *clock_, null_log(), identity_of("m"), "a", hooks, options);
  publisher.start();
  const auto source = publisher.wait_published(soon()).value();
  SourceFilter ready;
  ready.status = SourceStatus::kReady;
  EXPECT_EQ(client_->list(ready, soon()).value().size(), 1u);
  publisher.stop();
  EXPECT_EQ(client_->list(ready, soon()).value().size(), 0u);
  EXPECT_EQ(client_->get(source.source_id, "a", soon()).value().worker.status, SourceStatus::kStale);
}

TEST_F(GrpcTest, ServesManyClientsAtOnce) {
  constexpr int kClients = 8;
  std::vector<Task> tasks;
  for (int i = 0; i < kClients; ++i) {
    tasks.push_back(clock_->spawn("client", [this, i](std::stop_token) {
      const auto client = connect(server_->address());
      const auto source = client->publish(identity_of("m"), worker_of(0), std::to_string(i), soon());
      ASSERT_TRUE(source) << to_string(source.error());
      for (int beat = 0; beat < 20; ++beat) {
        EXPECT_TRUE(client->update_status(source->source_id, std::to_string(i), Rank(0), SourceStatus::kReady, soon()));
        EXPECT_TRUE(client->list({}, soon()));
      }
    }));
  }
  tasks.clear();
  EXPECT_EQ(client_->list({}, soon()).value().size(), static_cast<size_t>(kClients));
}

}  // namespace
}  // namespace towline::control

#endif
