#include "document.h"

#include <nlohmann/json.hpp>

namespace towline::cli {

struct Document::State {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
};

Document::Document() : state_(std::make_unique<State>()) {}
Document::Document(std::string_view schema) : Document() { set("schema", schema); }
Document::Document(const Document& other) : state_(std::make_unique<State>(*other.state_)) {}
Document::Document(Document&&) noexcept = default;
Document& Document::operator=(Document other) noexcept {
  state_.swap(other.state_);
  return *this;
}
Document::~Document() = default;

Document& Document::set(std::string_view key, std::string_view value) {
  state_->json[std::string(key)] = std::string(value);
  return *this;
}
Document& Document::set(std::string_view key, bool value) {
  state_->json[std::string(key)] = value;
  return *this;
}
Document& Document::set(std::string_view key, uint64_t value) {
  state_->json[std::string(key)] = value;
  return *this;
}
Document& Document::set_signed(std::string_view key, int64_t value) {
  state_->json[std::string(key)] = value;
  return *this;
}
Document& Document::set(std::string_view key, double value) {
  state_->json[std::string(key)] = value;
  return *this;
}
Document& Document::set(std::string_view key, const Document& value) {
  state_->json[std::string(key)] = value.state_->json;
  return *this;
}
Document& Document::set(std::string_view key, const std::vector<Document>& values) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const Document& value : values) array.push_back(value.state_->json);
  state_->json[std::string(key)] = std::move(array);
  return *this;
}
Document& Document::set(std::string_view key, const std::vector<std::string>& values) {
  state_->json[std::string(key)] = values;
  return *this;
}
Document& Document::set(std::string_view key, const std::vector<uint64_t>& values) {
  state_->json[std::string(key)] = values;
  return *this;
}
Document& Document::set_null(std::string_view key) {
  state_->json[std::string(key)] = nullptr;
  return *this;
}

std::string Document::text() const {
  return state_->json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace towline::cli
