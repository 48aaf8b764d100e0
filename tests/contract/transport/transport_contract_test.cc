// The suite itself, once for this executable; the implementations' tests instantiate it.
#include "contract/transport/transport_contract.h"
