// The suite itself, once for this executable; the implementations' tests instantiate it.
#include "contract/control/store_contract.h"
