// The library in one page: one side holds two tensors, the other pulls them by name and checks every byte.
// Two agents of one process here; with `ucx` in place of `in_memory` the same calls work between processes.

#include <fmt/core.h>

#include <cstring>

#include "towline/base/clock.h"
#include "towline/device/host.h"
#include "towline/transfer/layout.h"
#include "towline/transfer/manager.h"
#include "towline/transport/in_memory.h"

namespace {

using namespace towline;  // an example, not a header

tensor::Manifest model() {
  return {{.name = "embed",
           .address = {},
           .bytes = Bytes(4096),
           .device = {},
           .dtype = "torch.uint8",
           .shape = tensor::Shape{4096},
           .digest = {}},
          {.name = "head",
           .address = {},
           .bytes = Bytes(512),
           .device = {},
           .dtype = "torch.uint8",
           .shape = tensor::Shape{512},
           .digest = {}}};
}

Result<void> run() {
  const auto clock = make_system_clock();
  const auto device = device::open_host_device({*clock, null_log()}, {});
  transport::InMemoryFabric fabric;
  const auto open_agent = [&](const char* name) {
    return open_in_memory_transport({.name = name, .clock = *clock, .log = null_log()}, fabric, {});
  };
  const auto source_agent = TOWLINE_TRY(open_agent("source"));
  const auto reader_agent = TOWLINE_TRY(open_agent("reader"));
  transfer::TransferManager source({*clock, null_log(), *source_agent, *device});
  transfer::TransferManager reader({*clock, null_log(), *reader_agent, *device});

  // The source: memory for its tensors, contents, digests, and then the agent may be read from.
  transfer::Catalogue held = TOWLINE_TRY(transfer::allocate_for(model(), *device, {}));
  for (const transfer::LocalTensor& tensor : held.tensors())
    std::memset(tensor.memory.host_view(), 'x', tensor.memory.bytes.size());
  TOWLINE_TRY(source.register_tensors(
      TOWLINE_TRY(with_digests(std::move(held), *device, *clock, deadline_after(*clock, std::chrono::seconds(5))))));

  // The reader: memory of the same names and sizes, then one call. What the source says of itself usually comes from
  // the metadata server; here it is handed over.
  TOWLINE_TRY(reader.register_tensors(TOWLINE_TRY(transfer::allocate_for(model(), *device, {}))));
  const tensor::Manifest offered = source.manifest();
  const transfer::ReceiveReport report = reader.receive({source.metadata(), offered, "the source"},
                                                        {.deadline = deadline_after(*clock, std::chrono::seconds(5))});
  TOWLINE_TRY(Result<void>(report.status));
  fmt::print("pulled {} tensors, {}, {} verified, state {}\n", report.tensors, to_string(report.bytes), report.verified,
             transfer::state_name(report.state));
  return {};
}

}  // namespace

int main() {
  const Result<void> done = run();
  if (!done.has_value()) fmt::print(stderr, "{}\n", to_string(done.error()));
  return done.has_value() ? 0 : 1;
}
