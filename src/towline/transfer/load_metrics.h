#pragma once

#include <array>

#include "towline/base/metrics.h"

// The families of choosing a source and of loading a model (transfer.md 5), by the names that dashboards of
// ModelExpress know. The label `scheme` belongs to all of them: who exports them adds it. `policy` is the one that ran:
// `newest`, or `named` where the caller named the worker.

namespace towline::transfer::metrics {

inline constexpr std::array kPolicyLabels = {MetricLabel{"policy"}};

inline constexpr std::array<std::string_view, 3> kListResults = {"ok", "empty", "error"};
inline constexpr std::array kListLabels = {MetricLabel{"policy"}, MetricLabel{"result", kListResults, "error"}};
/// One for each listing of sources.
inline constexpr MetricFamily kListSources{"mx_p2p_list_sources_total", "Listings of sources by result.",
                                           MetricKind::kCounter, kListLabels};

/// One for each transfer that was attempted.
inline constexpr MetricFamily kSourceSelections{"mx_p2p_source_selections_total", "Sources that were chosen.",
                                                MetricKind::kCounter, kPolicyLabels};

inline constexpr std::array<std::string_view, 4> kAttemptResults = {"success", "metadata_miss", "transfer_retry",
                                                                    "transfer_fallback"};
inline constexpr std::array kAttemptLabels = {MetricLabel{"policy"},
                                              MetricLabel{"result", kAttemptResults, "transfer_fallback"}};
/// One for each record that could not be fetched, and one for each transfer that was attempted, when it ends.
inline constexpr MetricFamily kSourceAttempts{"mx_p2p_source_attempts_total", "Sources that were tried, by result.",
                                              MetricKind::kCounter, kAttemptLabels};

/// One for each fetch of a record that failed otherwise than with not found; beside the metadata_miss.
inline constexpr MetricFamily kLookupFailures{"mx_p2p_metadata_lookup_failures_total",
                                              "Fetches of a source's record that failed.", MetricKind::kCounter,
                                              kPolicyLabels};

inline constexpr std::array<std::string_view, 3> kCandidateStages = {"listed", "rank_matched", "accelerator_matched"};
inline constexpr std::array kCandidateLabels = {MetricLabel{"policy"}, MetricLabel{"stage", kCandidateStages}};
inline constexpr std::array<double, 9> kCandidateBuckets = {0, 1, 2, 4, 8, 16, 32, 64, 128};
/// All three stages for each listing that did not fail.
inline constexpr MetricFamily kCandidates{"mx_p2p_candidates", "Sources that were left after a stage.",
                                          MetricKind::kHistogram, kCandidateLabels, kCandidateBuckets};

inline constexpr std::array<double, 6> kSelectionBuckets = {1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1};
/// One for each listing that found something: what ordering its answer took.
inline constexpr MetricFamily kSelectionSeconds{"mx_p2p_source_selection_seconds", "How long choosing took.",
                                                MetricKind::kHistogram, kPolicyLabels, kSelectionBuckets};

inline constexpr std::array<std::string_view, 3> kTransferOutcomes = {"success", "retry", "fallback"};
inline constexpr std::array kTransferLabels = {MetricLabel{"policy"},
                                               MetricLabel{"outcome", kTransferOutcomes, "fallback"}};
inline constexpr std::array<double, 9> kTransferBuckets = {.5, 1, 2, 5, 10, 30, 60, 120, 300};
/// One for each transfer that was attempted: from making its memory to verified, or to its failure.
inline constexpr MetricFamily kTransferSeconds{"mx_p2p_transfer_seconds", "How long transfers from a source took.",
                                               MetricKind::kHistogram, kTransferLabels, kTransferBuckets};

inline constexpr std::array<std::string_view, 4> kEngines = {"vllm", "sglang", "trtllm", "other"};
inline constexpr std::array<std::string_view, 3> kModelRoles = {"main", "draft", "other"};
inline constexpr std::array<std::string_view, 2> kLoadOutcomes = {"success", "error"};
inline constexpr std::array<std::string_view, 4> kPhases = {"artifact_install", "model_init", "chain", "publish"};
/// The same in the server's and the client's histograms of ModelExpress, so that quantiles compare.
inline constexpr std::array<double, 15> kLoadBuckets = {.5,  1,   2.5, 5,    15,   30,   60,  120,
                                                        300, 600, 900, 1200, 1800, 2700, 3600};
inline constexpr std::array kLoadLabels = {
    MetricLabel{"engine", kEngines, "other"}, MetricLabel{"model", {}, "unknown"},
    MetricLabel{"model_role", kModelRoles, "other"}, MetricLabel{"outcome", kLoadOutcomes, "error"}};
/// One for each load, whichever way it ends.
inline constexpr MetricFamily kLoadSeconds{"mx_load_seconds", "How long loading a model took, until it was offered.",
                                           MetricKind::kHistogram, kLoadLabels, kLoadBuckets};

/// An unknown phase is dropped.
inline constexpr std::array kPhaseLabels = {MetricLabel{"engine", kEngines, "other"},
                                            MetricLabel{"model", {}, "unknown"}, MetricLabel{"phase", kPhases}};
/// One for each phase of a load that began, whichever way it ends. Phases do not overlap.
inline constexpr MetricFamily kLoadPhaseSeconds{"mx_load_phase_seconds", "How long the phases of a load took.",
                                                MetricKind::kHistogram, kPhaseLabels, kLoadBuckets};

}  // namespace towline::transfer::metrics
