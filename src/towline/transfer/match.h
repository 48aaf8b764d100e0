#pragma once

#include <string>
#include <vector>

#include "towline/base/result.h"
#include "towline/tensor/tensor_desc.h"
#include "towline/transfer/catalogue.h"

namespace towline::transfer {

/// How the two catalogues met (transfer.md 2.8, 5.1). kRejected: they are incompatible; another source may do.
enum class Outcome : uint8_t { kComplete, kPartial, kEmpty, kRejected };
std::string_view outcome_name(Outcome outcome);

struct MatchOptions {
  bool require_exact_match = false;  ///< both sides must name the same set
};

/// Which source tensor goes into which of ours. A value; computed before anything is touched.
struct Match {
  struct Pair {
    uint32_t source = 0;  ///< index into the source's manifest
    uint32_t local = 0;   ///< index into our catalogue
    friend bool operator==(const Pair&, const Pair&) = default;
  };
  std::vector<Pair> pairs;               ///< in the source's order; zero-byte tensors included
  std::vector<std::string> local_only;   ///< sorted
  std::vector<std::string> source_only;  ///< sorted
  Outcome outcome = Outcome::kEmpty;
  Bytes bytes;

  friend bool operator==(const Match&, const Match&) = default;
};

/// Matches by name, in the source's order: size is tested before dtype, that before the shape where both sides say one,
/// all before the sets of names, whatever the device. Also refuses what would write one byte twice or leave the address
/// space: a name twice in the source, a source range that wraps, two of our tensors that overlap. Errors:
/// kFailedPrecondition - incompatible (outcome kRejected): names the tensor and both values.
Result<Match> match(const tensor::Manifest& source, const Catalogue& local, const MatchOptions& options);

/// `3 local-only, 1 source-only; only here: a, b, c; only at the source: d`: at most five names a side. The first words
/// are those that ModelExpress's users look for (transfer.md 4).
std::string describe_difference(const Match& match);

}  // namespace towline::transfer
