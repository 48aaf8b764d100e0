#include "contract/transport/transport_contract_fixture.h"

namespace towline::transport::contract {
namespace {

/// UCX reads its variables when an agent opens.
class ScopedTls {
 public:
  explicit ScopedTls(const std::string& transports) : set_(!transports.empty()) {
    if (set_) setenv("UCX_TLS", transports.c_str(), 1);
  }
  ~ScopedTls() {
    if (set_) unsetenv("UCX_TLS");
  }

 private:
  const bool set_;
};

struct UcxWorldOptions {
  std::string transports;  // of UCX_TLS; empty: all
  bool segments = false;   // memory that peers map
};

class UcxWorld final : public TransportWorld {
 public:
  explicit UcxWorld(const UcxWorldOptions& options) : options_(options), tls_(options.transports) {}
  Clock& clock() override { return *clock_; }
  Result<std::unique_ptr<Transport>> open_agent(const std::string& name) override {
    TransportContext context{name, *clock_, null_log()};
    if (const char* folder = std::getenv("TOWLINE_MODULE_PATH")) context.module_directory = folder;
    auto agent = TOWLINE_TRY(open_transport("ucx", context));
    segments_ = agent->segments();
    return agent;
  }
  /// Who is asked for its memory says no; who is not asked cannot.
  bool revokes_regions() const override { return options_.transports == "tcp"; }
  /// The fixture allocates an agent's memory right after it has opened it: a segment of its own.
  device::MemoryRegionPtr allocate(Bytes bytes) override {
    if (!options_.segments) return own_host_memory(bytes);
    device::MemoryRegion::Fields fields;
    fields.keep_alive = segments_->allocate_segment(bytes).value();
    fields.host_view = static_cast<std::byte*>(const_cast<void*>(fields.keep_alive.get()));
    fields.address = Address::of(fields.host_view);
    fields.bytes = bytes;
    return std::make_shared<const device::MemoryRegion>(std::move(fields));
  }

 private:
  const UcxWorldOptions options_;
  const ScopedTls tls_;
  const std::unique_ptr<Clock> clock_ = make_system_clock();
  device::SegmentSource* segments_ = nullptr;
};

bool is_available() {
  UcxWorld world({});
  const auto agent = world.open_agent("probe");
  if (agent.has_value()) return true;
  std::fprintf(stderr, "skipped: %s\n", agent.error().message.c_str());
  return false;
}

TransportImplementation implementation(std::string name, const UcxWorldOptions& options) {
  return {std::move(name), [options] { return std::make_unique<UcxWorld>(options); }};
}

std::vector<TransportImplementation> implementations() {
  if (!is_available()) return {};
  return {implementation("Foreign", {}), implementation("Segments", {"", true}), implementation("Tcp", {"tcp", false}),
          implementation("SharedMemoryOnly", {"sysv,posix", false})};
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(TransportContract);
INSTANTIATE_TEST_SUITE_P(Ucx, TransportContract, ::testing::ValuesIn(implementations()), implementation_name);

}  // namespace
}  // namespace towline::transport::contract
