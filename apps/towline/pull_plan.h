#pragma once

#include <optional>
#include <string>

#include "app.h"
#include "replica.h"

namespace towline::cli {

struct PullPlanWish {
  std::optional<std::string> from_worker_id;  ///< only this one
  std::optional<std::string> or_load;         ///< what is read from disk when no candidate serves
};

/// What `pull` would do, and moves nothing: the candidates in the order in which they would be tried, and of each what
/// would be read in how many posts, and what could be verified. Errors: kNotFound - no replica serves the model and
/// nothing is named to load instead; those of opening the transport.
Result<void> print_pull_plan(App& app, control::Metadata& metadata, const ReplicaFlags& flags,
                             const PullPlanWish& wish);

}  // namespace towline::cli
