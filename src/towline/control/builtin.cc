#include <algorithm>

#include "towline/control/store.h"
#include "towline/control/stores/memory.h"
#include "towline/control/stores/sqlite.h"

namespace towline::control {
namespace {

Result<std::unique_ptr<Store>> open_memory(std::string_view location, const StoreContext& context) {
  if (!location.empty()) return fail(Code::kInvalidArgument, "store 'memory:{}': memory: takes no location", location);
  return make_memory_store(context.clock);
}

Result<std::unique_ptr<Store>> open_redis(std::string_view location, const StoreContext&) {
  return fail(Code::kUnavailable,
              "store 'redis:{}': Redis comes in a later release; use sqlite:PATH with one metadata server", location);
}

// All there is, in order of preference for `towline info`.
constexpr StoreEntry kStores[] = {
    {"sqlite", "sqlite:PATH  one file, kept over restarts; one server", &open_sqlite_store},
    {"memory", "memory:  in the server's memory, gone with it", &open_memory},
    {"redis", "redis:HOST:PORT  shared by several servers; not in this release", &open_redis},
};

}  // namespace

std::span<const StoreEntry> builtin_stores() { return kStores; }

Result<std::unique_ptr<Store>> open_store(std::string_view url, const StoreContext& context) {
  const size_t colon = url.find(':');
  const std::string_view scheme = url.substr(0, colon);
  const auto stores = builtin_stores();
  const auto entry = std::find_if(stores.begin(), stores.end(), [&](const auto& e) { return e.name == scheme; });
  if (entry == stores.end()) {
    return fail(Code::kInvalidArgument, "store '{}': unknown kind; write memory: or sqlite:PATH", url);
  }
  return entry->open(colon == std::string_view::npos ? std::string_view() : url.substr(colon + 1), context);
}

}  // namespace towline::control
