#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "towline/base/bytes.h"

namespace towline::reshard {

/// How the bytes of one source come over.
enum class ReadForm : uint8_t {
  kPlain,     ///< every run a read of its own, to its place
  kStrided,   ///< rules, as the transport takes them
  kPacked,    ///< the publisher copies them together in the reader's order; one read a shard
  kFullPull,  ///< the whole source into a staging window, cut here
};
inline constexpr size_t kReadForms = 4;
std::string_view name(ReadForm form);

/// What a machine and its transport do: the inputs of a choice. Defaults are this project's measurements on one host
/// (benchmarks.md) and a 400 Gb/s card for the wire.
struct CostModel {
  double descriptor_ns = 126;         ///< one read, whatever its size
  double strided_run_ns = 30;         ///< one run of a rule, above its bytes
  double wire_bytes_per_s = 50e9;     ///< into one reader
  double pack_bytes_per_s = 10e9;     ///< of one publisher; it works for its readers side by side
  double reslice_bytes_per_s = 10e9;  ///< out of staging
  bool has_strided = true;            ///< the transport takes rules
  bool has_packing = false;           ///< the publishers pack
};

/// What one source's copies are, as each form would move them.
struct SourceLoad {
  uint64_t useful_bytes = 0;
  uint64_t runs = 0;
  uint64_t rules = 0;
  uint64_t packed_reads = 0;   ///< once the sources have packed what lies side by side here
  uint64_t whole_bytes = 0;    ///< of the source
  uint64_t whole_reads = 0;    ///< shards that hold it
  bool can_pull_whole = true;  ///< its shards are whole rows
};

/// Seconds each form takes; empty where it cannot be had.
using FormCosts = std::array<std::optional<double>, kReadForms>;
FormCosts costs_of(const SourceLoad& load, const CostModel& model);
/// The cheapest; of equal ones the first of ReadForm.
ReadForm cheapest(const FormCosts& costs);

}  // namespace towline::reshard
