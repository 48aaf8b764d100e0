#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "towline/base/result.h"
#include "towline/reshard/capture.h"
#include "towline/reshard/source_table.h"
#include "towline/tensor/box.h"

namespace towline::reshard {

/// What to do with shards that hold the same elements without being replicas of each other.
enum class Overlap : uint8_t {
  kResolve,  ///< the first in the table gives them
  kRefuse,
};

/// A part of a needed box, and the box of the source's placement that gives it.
struct CoverPiece {
  tensor::Box box;
  uint32_t source_box = 0;
};

/// Cuts a needed box into disjoint pieces that somebody holds, which together are all of it: the proof that a read of
/// them leaves no element unwritten and writes none twice. In the order of the table. Pure.
/// Errors: kFailedPrecondition - no shard holds some of it: names the source and the missing box; with
/// Overlap::kRefuse also where boxes overlap partly. Source: reshard.md 2.5.
Result<std::vector<CoverPiece>> cover(const SourceTensor& source, const ReplicaSets& replicas,
                                      const tensor::Box& needed, Overlap overlap);

/// The same of a regular cut, whose boxes tile the tensor: the boxes [first, second) meet the needed one, each is held,
/// and the parts that they give need not be written down. Errors: as cover().
Result<std::pair<uint32_t, uint32_t>> cover_regular(const SourceTensor& source, const ReplicaSets& replicas,
                                                    const tensor::Box& needed);

/// `[0:16, 4:8]`
std::string to_string(const tensor::Box& box);

/// How much of an engine's parameters a capture writes, by bytes. A value.
struct ParameterCoverage {
  uint64_t parameter_bytes = 0;
  uint64_t written_bytes = 0;
  uint64_t parameters_written = 0;             ///< wholly or in part
  std::vector<std::string> never_written;      ///< sorted
  std::vector<std::string> partially_written;  ///< sorted: padding, or a copy that is missing
};

/// Proves that no two copies write the same element of a parameter, and adds up what they write.
/// Errors: kFailedPrecondition - two copies overlap, or one leaves its parameter: names sources and parameter;
/// kNotFound - a copy into a parameter that the engine does not have. Source: reshard.md 2.5, 3.6.
Result<ParameterCoverage> prove_targets(const Capture& capture, const Parameters& parameters);

}  // namespace towline::reshard
