#include "models/instruments.h"

#include <bit>

namespace halftone {
namespace {

constexpr const char* kGroup = "/histogram/";
constexpr const char* kSteps = "/histogram/step";

std::vector<float> as_floats(const Tensor& t, float factor) {
  const std::vector<double> values = t.to_doubles();
  std::vector<float> floats;
  floats.reserve(values.size());
  for (const double value : values) {
    floats.push_back(static_cast<float>(value) * factor);
  }
  return floats;
}

}  // namespace

ExponentHistogram exponent_histogram(std::span<const float> values) {
  ExponentHistogram counts{};
  for (const float value : values) {
    ++counts[std::bit_cast<uint32_t>(value) >> 23 & 0xff];
  }
  return counts;
}

void Instruments::take(int64_t iteration, const ParameterSet& parameters, const StepState& state) {
  const float unscale = state.read().unscale;
  steps_.push_back(iteration);
  const auto add = [&](const std::string& name, const Tensor& t, float factor) {
    const ExponentHistogram counts = exponent_histogram(as_floats(t, factor));
    std::vector<uint32_t>& all = counts_[name];
    all.insert(all.end(), counts.begin(), counts.end());
  };
  for (const Parameter& p : parameters.all()) {
    add(concat("weight/", p.path), p.without_padding(p.source), 1.0f);
    add(concat("gradient/", p.path), p.without_padding(p.gradient), unscale);
  }
}

void Instruments::write(Hdf5File& file) const {
  if (steps_.empty()) {
    return;
  }
  const auto num_steps = static_cast<int64_t>(steps_.size());
  file.write<int64_t>(kSteps, {num_steps}, steps_);
  for (const auto& [name, counts] : counts_) {
    file.write<uint32_t>(concat(kGroup, name), {num_steps, 256}, counts);
  }
}

void Instruments::read(const Hdf5File& file) {
  if (!file.has(kSteps)) {
    return;
  }
  steps_ = file.read<int64_t>(kSteps);
  for (const std::string& name : file.datasets()) {
    if (name.starts_with(kGroup) && name != kSteps) {
      counts_[name.substr(std::string_view(kGroup).size())] = file.read<uint32_t>(name);
    }
  }
}

}  // namespace halftone
