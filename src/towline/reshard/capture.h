#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "towline/reshard/op_chain.h"
#include "towline/tensor/shape.h"

namespace towline::reshard {

/// One copy that an engine's weight loader makes: from a view of a source to a view of a parameter. Offset and strides
/// are elements of the parameter's storage. A value.
struct RecordedCopy {
  std::string source;
  OpChain chain;
  std::string parameter;
  uint64_t target_offset = 0;
  tensor::Shape target_shape;
  std::vector<uint64_t> target_stride;
  std::string target_dtype;
};

/// What a loader does with all its sources. A value. Source: reshard.md 1.
struct Capture {
  std::vector<RecordedCopy> copies;
  std::map<std::string, std::string> unsupported;  ///< source, and why its loader could not be followed
  uint64_t unattributed = 0;                       ///< copies into no known parameter: lost
};

/// A parameter as the engine loads it, before any processing after loading.
struct Parameter {
  tensor::Shape shape;
  std::string dtype;
  uint32_t element_bytes = 0;
  friend bool operator==(const Parameter&, const Parameter&) = default;
};
/// The engine's complete set, by name.
using Parameters = std::map<std::string, Parameter>;

}  // namespace towline::reshard
