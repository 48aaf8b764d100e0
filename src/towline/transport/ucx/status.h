#pragma once

#include <string_view>

#include "towline/base/error.h"

namespace towline::transport::ucx {

/// An Error for a negative ucs_status_t: `what` names the thing, UCX's own words the cause. Statuses that speak of the
/// connection are kUnavailable of scope kEndpoint.
Error status_error(int status, std::string_view what);

}  // namespace towline::transport::ucx
