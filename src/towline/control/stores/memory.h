#pragma once

#include <memory>

#include "towline/control/store.h"

namespace towline::control {

/// Records in this process, gone with it. For tests, simulations and a server that may forget.
std::unique_ptr<Store> make_memory_store(Clock& clock);

}  // namespace towline::control
