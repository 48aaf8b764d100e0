#pragma once

#include <string>

#include "towline/control/metadata.h"

namespace towline::control {

/// The bytes that are hashed: JSON, keys sorted, no spaces, every string in lower case, raw UTF-8 (no \u escapes but
/// of control characters). Pure. Source: transfer.md 7.2.
std::string canonical_json(const SourceIdentity& identity);

/// 16 lower-case hexadecimal digits: the first 8 bytes of the SHA-256 of canonical_json(). For discovery; 64 bits are
/// no integrity check, and an empty revision lets two sets of weights share an id. Pure.
std::string source_id(const SourceIdentity& identity);

}  // namespace towline::control
