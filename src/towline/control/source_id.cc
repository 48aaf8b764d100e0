#include "towline/control/source_id.h"

#include <fmt/format.h>

#include <map>

#include "towline/base/hash.h"
#include "towline/control/unicode.h"

namespace towline::control {
namespace {

using JsonValues = std::map<std::string, std::string>;  // name -> JSON text, in the order of the bytes of the name

void append_escaped(std::string& out, char c) {
  constexpr std::string_view kNamed = "\"\\\b\f\n\r\t";
  constexpr std::string_view kLetters = "\"\\bfnrt";
  if (const size_t at = kNamed.find(c); at != std::string_view::npos) {
    out += '\\';
    out += kLetters[at];
  } else if (static_cast<unsigned char>(c) < 0x20) {
    out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
  } else {
    out += c;
  }
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) append_escaped(out, c);
  return out += '"';
}

std::string json_text(std::string_view text) { return quoted(lower_case(text)); }

std::string json_object(const JsonValues& values) {
  std::string out = "{";
  for (const auto& [key, value] : values) {
    if (out.size() > 1) out += ',';
    out += quoted(key);
    out += ':';
    out += value;
  }
  return out += '}';
}

std::string json_parameters(const std::map<std::string, std::string>& parameters) {
  JsonValues values;  // emplace: of two keys that differ in case only, the first in original order wins
  for (const auto& [key, value] : parameters) values.emplace(lower_case(key), json_text(value));
  return json_object(values);
}

}  // namespace

std::string canonical_json(const SourceIdentity& identity) {
  JsonValues values = {
      {"mx_version", json_text(identity.mx_version)},
      {"mx_source_type", std::to_string(identity.mx_source_type)},
      {"model_name", json_text(identity.model_name)},
      {"backend_framework", std::to_string(identity.backend_framework)},
      {"tensor_parallel_size", std::to_string(identity.tensor_parallel_size)},
      {"pipeline_parallel_size", std::to_string(identity.pipeline_parallel_size)},
      {"expert_parallel_size", std::to_string(identity.expert_parallel_size)},
      {"dtype", json_text(identity.dtype)},
      {"quantization", json_text(identity.quantization)},
      {"extra_parameters", json_parameters(identity.extra_parameters)},
      {"revision", json_text(identity.revision)},
  };
  const auto add_unless_empty = [&values](const char* key, const std::string& text) {
    if (!text.empty()) values.emplace(key, json_text(text));
  };
  add_unless_empty("backend_framework_version", identity.backend_framework_version);
  add_unless_empty("torch_version", identity.torch_version);
  add_unless_empty("cuda_version", identity.cuda_version);
  add_unless_empty("triton_version", identity.triton_version);
  add_unless_empty("gpu_arch", identity.gpu_arch);
  add_unless_empty("compile_config_digest", identity.compile_config_digest);
  return json_object(values);
}

std::string source_id(const SourceIdentity& identity) {
  const auto digest = sha256(as_bytes(canonical_json(identity)));
  return to_hex(std::span(digest).first(8));
}

}  // namespace towline::control
