#pragma once

#include <atomic>

#include "towline/device/device.h"

namespace towline::device {

/// Entries that a software stream holds before it says kResourceExhausted. A driver's own ring has 1024 or so; ours
/// takes a plan of a large model at once, at about 300 bytes an entry.
inline constexpr size_t kStreamEntriesMax = 16384;

/// How long a dropped stream waits for the event of another stream before it fails the rest. Far above any copy that an
/// event can stand for: only a stream that is itself stuck takes so long.
inline constexpr Nanoseconds kDropPatience = std::chrono::seconds(30);

struct SoftwareStreamOptions {
  std::string device;  ///< its name, for error texts and the task
  MemoryKind kind = MemoryKind::kHost;
  DeviceOrdinal ordinal;
  double copy_bytes_per_s = 0;            ///< above 0: copies and fills take their time on the clock
  std::atomic<int64_t>* fault = nullptr;  ///< counts accepted operations; outlives the stream
};

/// A stream whose operations a task of the clock runs one after another, touching memory through its host view; it has
/// every operation. The task waits through the clock alone and no lock is held meanwhile, so it may be a fiber.
std::unique_ptr<Stream> open_software_stream(const DeviceContext& context, const SoftwareStreamOptions& options);

}  // namespace towline::device
