#pragma once

#include <array>

#include "towline/base/metrics.h"

// The families of the control room (transfer.md 5.2), by the names that dashboards of ModelExpress know. The label
// `scheme` belongs to all of them and is constant for a process: who exports them adds it.

namespace towline::control::metrics {

inline constexpr std::array<std::string_view, 2> kComponents = {"client", "server"};
inline constexpr std::array kBuildLabels = {MetricLabel{"component", kComponents, "client"}, MetricLabel{"version"}};
/// 1 from the start of the process on: present before anything else was recorded.
inline constexpr MetricFamily kBuildInfo{"mx_build_info", "What this process is; always 1.", MetricKind::kGauge,
                                         kBuildLabels};
inline constexpr std::array kServerBuildLabels = {MetricLabel{"component", kComponents, "server"},
                                                  MetricLabel{"version"}, MetricLabel{"backend"}};
/// The same of a metadata server, with the kind of its store.
inline constexpr MetricFamily kServerBuildInfo{"mx_build_info", "What this process is; always 1.", MetricKind::kGauge,
                                               kServerBuildLabels};

/// Calls and store operations take from below a millisecond (memory) to a client's whole deadline.
inline constexpr std::array<double, 14> kCallBuckets = {.0005, .001, .0025, .005, .01, .025, .05,
                                                        .1,    .25,  .5,    1,    2.5, 5,    10};

inline constexpr std::array<std::string_view, 4> kMethods = {"PublishMetadata", "ListSources", "GetMetadata",
                                                             "UpdateStatus"};
inline constexpr std::array<std::string_view, 7> kOutcomes = {
    "ok", "invalid_argument", "not_found", "backend_error", "unauthenticated", "cancelled", "error"};
inline constexpr std::array kRequestLabels = {MetricLabel{"method", kMethods, "other"},
                                              MetricLabel{"outcome", kOutcomes, "error"}};
inline constexpr std::array kMethodLabels = {MetricLabel{"method", kMethods, "other"}};
/// One for each call when it ends. A refusal that is an ordinary answer on the wire counts as what was refused.
inline constexpr MetricFamily kGrpcRequests{"mx_grpc_requests_total", "Calls by method and outcome.",
                                            MetricKind::kCounter, kRequestLabels};
inline constexpr MetricFamily kGrpcRequestSeconds{"mx_grpc_request_seconds", "How long calls took.",
                                                  MetricKind::kHistogram, kMethodLabels, kCallBuckets};
inline constexpr MetricFamily kGrpcRequestsInFlight{"mx_grpc_requests_in_flight", "Calls in progress now.",
                                                    MetricKind::kGauge};

inline constexpr std::array<std::string_view, 3> kStores = {"p2p", "registry", "refit"};
inline constexpr std::array<std::string_view, 3> kOps = {"find", "list", "commit"};
inline constexpr std::array<std::string_view, 3> kOpResults = {"ok", "error", "cancelled"};
inline constexpr std::array kOpLabels = {MetricLabel{"store", kStores, "p2p"}, MetricLabel{"op", kOps, "other"},
                                         MetricLabel{"result", kOpResults, "error"}};
inline constexpr std::array kOpTimeLabels = {MetricLabel{"store", kStores, "p2p"}, MetricLabel{"op", kOps, "other"}};
inline constexpr std::array kStoreLabels = {MetricLabel{"store", kStores, "p2p"}};
/// One for each operation on a store when it ends. A lost compare-and-set is an answer: ok.
inline constexpr MetricFamily kBackendOps{"mx_backend_ops_total", "Store operations by kind and result.",
                                          MetricKind::kCounter, kOpLabels};
inline constexpr MetricFamily kBackendOpSeconds{"mx_backend_op_seconds", "How long store operations took.",
                                                MetricKind::kHistogram, kOpTimeLabels, kCallBuckets};
inline constexpr MetricFamily kBackendOpsInFlight{"mx_backend_ops_in_flight", "Store operations in progress now.",
                                                  MetricKind::kGauge, kStoreLabels};

}  // namespace towline::control::metrics
