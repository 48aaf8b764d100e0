#include <dlfcn.h>
#include <link.h>

#include <filesystem>

#include "towline/transport/in_memory.h"
#include "towline/transport/transport.h"
#include "towline/transport/ucx_module.h"

namespace towline::transport {
namespace {

namespace fs = std::filesystem;

/// The folder of the program or library that this code was linked into; empty when the system does not say.
fs::path own_folder() {
  std::error_code ignored;
  Dl_info info{};
  link_map* map = nullptr;
  if (dladdr1(reinterpret_cast<const void*>(&own_folder), &info, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0)
    return {};
  // The main program has no name here, and dli_fname is whatever its caller called it.
  const bool is_program = map == nullptr || map->l_name == nullptr || map->l_name[0] == '\0';
  return fs::canonical(is_program ? "/proc/self/exe" : map->l_name, ignored).parent_path();
}

std::vector<fs::path> module_paths(const std::string& directory) {
  std::vector<fs::path> paths;
  if (!directory.empty()) paths.push_back(fs::path(directory) / kUcxModuleFile);
  const fs::path own = own_folder();
  if (own.empty()) return paths;
  paths.push_back((own / ".." / "lib" / kUcxModuleFile).lexically_normal());
  paths.push_back(own / kUcxModuleFile);
  return paths;
}

/// Loads the first that loads. Never unloaded: its code runs in threads, and in objects that outlive any handle.
Result<void*> load_module(const std::string& directory) {
  std::string tried;
  for (const fs::path& path : module_paths(directory)) {
    if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) return handle;
    const char* why = dlerror();
    tried += fmt::format("; tried {}: {}", path.string(), why == nullptr ? "unknown error" : why);
  }
  return fail(Code::kUnavailable, Scope::kProcess,
              "transport 'ucx': its module {} was not loaded; install libucx and build it, or name its folder{}",
              kUcxModuleFile, tried);
}

Result<std::unique_ptr<Transport>> open_ucx(const TransportContext& context) {
  void* handle = TOWLINE_TRY(load_module(context.module_directory));
  const auto open = reinterpret_cast<OpenTransportModule>(dlsym(handle, kUcxModuleEntry));
  if (open == nullptr)
    return fail(Code::kUnavailable, Scope::kProcess, "transport 'ucx': {} has no symbol {}; reinstall it",
                kUcxModuleFile, kUcxModuleEntry);
  Result<std::unique_ptr<Transport>> result = fail(Code::kInternal, "transport 'ucx': its module gave no answer");
  const uint32_t abi = open(kTransportModuleAbi, &context, &result);
  if (abi != kTransportModuleAbi)
    return fail(Code::kUnavailable, Scope::kProcess,
                "transport 'ucx': {} is of interface {}, this program of {}; "
                "install both from one build",
                kUcxModuleFile, abi, kTransportModuleAbi);
  return result;
}

Result<std::unique_ptr<Transport>> open_in_memory(const TransportContext& context) {
  if (context.fabric == nullptr)
    return fail(Code::kUnavailable, Scope::kProcess,
                "transport 'in_memory': reaches agents of one process only, and this one was given no fabric for them");
  return open_in_memory_transport(context, *context.fabric, {});
}

constexpr TransportEntry kTransports[] = {
    {"ucx", &open_ucx},              // shared memory, RDMA, TCP; kUnavailable where libucp is absent
    {"in_memory", &open_in_memory},  // within one process
};

}  // namespace

std::span<const TransportEntry> builtin_transports() { return kTransports; }

Result<std::unique_ptr<Transport>> open_transport(std::string_view name, const TransportContext& context) {
  std::string known;
  for (const TransportEntry& entry : builtin_transports()) {
    if (entry.name == name) return entry.open(context);
    known += fmt::format("{}'{}'", known.empty() ? "" : ", ", entry.name);
  }
  return fail(Code::kNotFound, "no transport '{}'; there are {}", name, known);
}

}  // namespace towline::transport
