// The suite itself, once for this executable; the implementations' tests instantiate it.
#include "contract/device/device_contract.h"

#include "contract/device/stream_contract.h"
