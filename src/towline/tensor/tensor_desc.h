#pragma once

#include <optional>
#include <string>
#include <vector>

#include "towline/base/bytes.h"
#include "towline/base/ordinal.h"
#include "towline/tensor/digest.h"
#include "towline/tensor/dtype.h"
#include "towline/tensor/shape.h"

namespace towline::tensor {

/// One tensor as its owner publishes it: row-major, contiguous, at `address` on the owner's device. A value.
/// `name` is UTF-8 and not empty; `dtype` stays text on the wire (peers compare strings), parsed where it must be
/// known.
struct TensorDesc {
  std::string name;
  Address address;
  Bytes bytes;
  DeviceOrdinal device;
  std::string dtype;           ///< as torch prints it: `torch.bfloat16`
  std::optional<Shape> shape;  ///< peers that publish none exist
  std::optional<Digest> digest;

  friend bool operator==(const TensorDesc&, const TensorDesc&) = default;
};

/// A catalogue in publishing order; the matching key is the name.
using Manifest = std::vector<TensorDesc>;

}  // namespace towline::tensor
