#pragma once

#include "towline/base/bytes.h"
#include "towline/base/ordinal.h"
#include "towline/device/device_op.h"

namespace towline::transport {

using device::Grid;
using device::Strides;

/// A rule for one-sided movement: outer x inner runs of `bytes`; run (i, j) lies at address + i * outer + j * inner on
/// each side. 1 x 1 is a plain range. Never expanded before caps() demand it. A value.
struct Piece {
  Address local;
  Address remote;
  Bytes bytes;
  Grid grid = {};
  Strides local_stride = {};
  Strides remote_stride = {};
  DeviceOrdinal remote_device = {};

  friend bool operator==(const Piece&, const Piece&) = default;
};

bool is_plain(const Piece& piece);
/// bytes * outer * inner; empty on overflow.
std::optional<Bytes> total_bytes(const Piece& piece);
/// From the first byte touched to one past the last, on each side; empty on overflow.
std::optional<Bytes> local_span(const Piece& piece);
std::optional<Bytes> remote_span(const Piece& piece);

}  // namespace towline::transport
