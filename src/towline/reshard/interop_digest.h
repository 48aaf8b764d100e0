#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace towline::reshard {

/// The digest by which ModelExpress's trainers and generators compare a shard: sums over rows of 1024 words of 32 bits,
/// hashed by BLAKE2b-128; 32 lower-case hexadecimal digits. Blind to the order of words within a row: for exchange with
/// those only, ours is tensor::Digest. Source: reshard.md 3.10.
std::string interop_digest(std::span<const std::byte> bytes);

}  // namespace towline::reshard
