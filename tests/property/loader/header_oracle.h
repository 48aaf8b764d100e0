#pragma once

// The slow, obvious reading of a safetensors header, for tests to hold the fast one against: nlohmann's parser gives
// the events, a small tree keeps duplicate keys, every rule of docs/formats/safetensors.md is one plain line.

#include <algorithm>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace towline::loader::oracle {

struct Member;
struct Node {
  enum class Kind { kNull, kString, kCount, kObject, kArray, kOther };
  Kind kind = Kind::kOther;
  std::string text;
  uint64_t count = 0;
  std::vector<Member> members;  // an array's have empty names

  const Node* find(std::string_view name) const;
  bool has_duplicates() const;
};
struct Member {
  std::string name;
  Node value;
};

inline const Node* Node::find(std::string_view name) const {
  for (const Member& member : members) {
    if (member.name == name) return &member.value;
  }
  return nullptr;
}

inline bool Node::has_duplicates() const {
  std::set<std::string> names;
  for (const Member& member : members) {
    if (!names.insert(member.name).second) return true;
  }
  return false;
}

/// Builds the tree; refuses what is nested deeper than `depth_max`.
class TreeBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit TreeBuilder(size_t depth_max) : depth_max_(depth_max) {}
  Node root;

  bool null() override { return add(Node::Kind::kNull); }
  bool boolean(bool) override { return add(Node::Kind::kOther); }
  bool number_integer(number_integer_t) override { return add(Node::Kind::kOther); }
  bool number_unsigned(number_unsigned_t value) override { return add(Node::Kind::kCount, {}, value); }
  bool number_float(number_float_t, const string_t&) override { return add(Node::Kind::kOther); }
  bool string(string_t& value) override { return add(Node::Kind::kString, value); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(Node::Kind::kObject); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(Node::Kind::kArray); }
  bool end_array() override { return close(); }
  bool key(string_t& value) override { return key_ = value, true; }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  Node& place() {
    if (open_.empty()) return root;
    auto& members = open_.back()->members;
    const bool object = open_.back()->kind == Node::Kind::kObject;
    members.push_back(Member{object ? key_ : std::string(), Node{}});
    return members.back().value;
  }
  bool add(Node::Kind kind, std::string text = {}, uint64_t count = 0) {
    Node& node = place();
    node.kind = kind;
    node.text = std::move(text);
    node.count = count;
    return true;
  }
  bool open(Node::Kind kind) {
    if (open_.size() >= depth_max_) return false;
    Node& node = place();
    node.kind = kind;
    open_.push_back(&node);  // stays put: its parent's members grow only after it was closed
    return true;
  }
  bool close() { return open_.pop_back(), true; }

  size_t depth_max_;
  std::string key_;
  std::vector<Node*> open_;
};

struct Tensor {
  std::string name;
  std::string dtype;
  std::vector<uint64_t> shape;
  uint64_t begin = 0;
  uint64_t end = 0;
  size_t place = 0;  // in the text
};
struct Header {
  std::vector<Tensor> tensors;  // in file order
  std::map<std::string, std::string> metadata;
};

inline const std::map<std::string, unsigned>& dtype_bits() {
  static const std::map<std::string, unsigned> kBits = {
      {"BOOL", 8}, {"U8", 8},      {"I8", 8},      {"F8_E5M2", 8},     {"F8_E4M3", 8},     {"F8_E8M0", 8},
      {"F4", 4},   {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
      {"U16", 16}, {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
      {"F64", 64}, {"I64", 64},    {"U64", 64},    {"C64", 64}};
  return kBits;
}

inline std::optional<std::vector<uint64_t>> counts(const Node* node) {
  if (node == nullptr || node->kind != Node::Kind::kArray) return std::nullopt;
  std::vector<uint64_t> values;
  for (const auto& member : node->members) {
    if (member.value.kind != Node::Kind::kCount) return std::nullopt;
    values.push_back(member.value.count);
  }
  return values;
}

inline std::optional<Tensor> read_tensor(const std::string& name, const Node& body) {
  if (name.empty() || name.size() > 65'535 || name.find('\0') != std::string::npos) return std::nullopt;
  if (body.kind != Node::Kind::kObject || body.has_duplicates() || body.members.size() > 64 + 3) return std::nullopt;
  const Node* dtype = body.find("dtype");
  const auto shape = counts(body.find("shape"));
  const auto offsets = counts(body.find("data_offsets"));
  if (dtype == nullptr || dtype->kind != Node::Kind::kString || !shape || !offsets) return std::nullopt;
  if (offsets->size() != 2 || shape->size() > 64 || !dtype_bits().count(dtype->text)) return std::nullopt;
  unsigned __int128 bits = 1;
  for (const uint64_t extent : *shape) {
    bits *= extent;
    if (bits >> 64 != 0) return std::nullopt;
  }
  bits *= dtype_bits().at(dtype->text);
  const uint64_t begin = offsets->at(0);
  const uint64_t end = offsets->at(1);
  if (bits % 8 != 0 || end < begin || bits / 8 != end - begin) return std::nullopt;
  return Tensor{name, dtype->text, *shape, begin, end};
}

inline bool read_metadata(const Node& node, std::map<std::string, std::string>& metadata) {
  if (node.kind == Node::Kind::kNull) return true;
  if (node.kind != Node::Kind::kObject || node.has_duplicates()) return false;
  for (const auto& [key, value] : node.members) {
    if (value.kind != Node::Kind::kString) return false;
    metadata[key] = value.text;
  }
  return true;
}

/// Nothing: the header is to be refused.
inline std::optional<Header> read(std::string_view file, uint64_t file_bytes, size_t nesting_max = 127) {
  if (file.size() < 8) return std::nullopt;
  uint64_t length = 0;
  for (size_t i = 8; i-- > 0;) length = length << 8 | static_cast<unsigned char>(file[i]);
  if (length > 100'000'000 || length > file_bytes - 8 || file.size() < 8 + length) return std::nullopt;
  const std::string_view text = file.substr(8, length);
  // nlohmann takes a byte order mark, and a NUL for the end.
  if (text.substr(0, 3) == "\xEF\xBB\xBF" || text.find('\0') != std::string_view::npos) return std::nullopt;
  TreeBuilder builder(nesting_max);
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) return std::nullopt;
  if (builder.root.kind != Node::Kind::kObject || builder.root.has_duplicates()) return std::nullopt;
  Header header;
  for (const auto& [name, body] : builder.root.members) {
    if (name == "__metadata__") {
      if (!read_metadata(body, header.metadata)) return std::nullopt;
      continue;
    }
    auto tensor = read_tensor(name, body);
    if (!tensor) return std::nullopt;
    tensor->place = header.tensors.size();
    header.tensors.push_back(std::move(*tensor));
  }
  std::sort(header.tensors.begin(), header.tensors.end(), [](const Tensor& a, const Tensor& b) {
    return std::tie(a.begin, a.end, a.place) < std::tie(b.begin, b.end, b.place);
  });
  uint64_t end = 0;
  for (const Tensor& tensor : header.tensors) {
    if (tensor.begin != end) return std::nullopt;
    end = tensor.end;
  }
  if (end != file_bytes - 8 - length) return std::nullopt;
  return header;
}

}  // namespace towline::loader::oracle
