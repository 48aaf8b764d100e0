#pragma once

#include <array>

#include "towline/base/metrics.h"

// The families of the transfer room (transfer.md 5), by the names that dashboards of ModelExpress know. The label
// `scheme` belongs to all of them and is constant for a process: who exports them adds it.

namespace towline::transfer::metrics {

inline constexpr std::array<std::string_view, 4> kReceiveResults = {"complete", "partial", "empty", "rejected"};
inline constexpr std::array<MetricLabel, 1> kReceiveLabels = {MetricLabel{"result", kReceiveResults, "empty"}};
/// One for each receive that ended by itself: none when an exception or the wire ended it.
inline constexpr MetricFamily kReceives{"mx_nixl_receive_total", "Receives by how the two catalogues met.",
                                        MetricKind::kCounter, kReceiveLabels};

inline constexpr std::array<std::string_view, 2> kErrorKinds = {"timeout", "status_error"};
inline constexpr std::array<MetricLabel, 1> kErrorLabels = {MetricLabel{"kind", kErrorKinds, "status_error"}};
/// One for each wait that failed, however many transfers it waited for.
inline constexpr MetricFamily kDataPlaneErrors{
    "mx_nixl_data_plane_errors_total", "Waits for transfers that failed, by kind.", MetricKind::kCounter, kErrorLabels};

inline constexpr std::array<std::string_view, 5> kStages = {"connect", "prepare", "post", "verify", "synchronize"};
inline constexpr std::array<MetricLabel, 1> kStageLabels = {MetricLabel{"stage", kStages, "post"}};
/// What the two families above leave out: a receive that ended outside its wait.
inline constexpr MetricFamily kFailures{"towline_transfer_failures_total", "Receives that failed outside their wait.",
                                        MetricKind::kCounter, kStageLabels};
inline constexpr MetricFamily kBytes{"towline_transfer_bytes_total", "Bytes received.", MetricKind::kCounter, {}};
inline constexpr MetricFamily kRegions{"towline_registered_regions", "Regions registered now.", MetricKind::kGauge, {}};

}  // namespace towline::transfer::metrics
