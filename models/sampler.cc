#include "models/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/autograd.h"
#include "core/check.h"
#include "core/philox.h"
#include "core/storage.h"

namespace halftone {

int32_t pick_token(std::span<const double> logits, const SamplerOptions& options, double uniform) {
  HALFTONE_CHECK(!logits.empty(), "pick_token: no logits");
  HALFTONE_CHECK(
      std::all_of(logits.begin(), logits.end(), [](double x) { return std::isfinite(x); }),
      "pick_token: a logit is not finite; the model's weights are broken");
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  const auto kept =
      options.top_k == 0 ? std::ssize(order) : std::min<int64_t>(options.top_k, std::ssize(order));
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  order.resize(static_cast<size_t>(kept));
  if (options.temperature == 0.0) {
    return order.front();
  }
  const double largest = logits[static_cast<size_t>(order.front())];
  std::vector<double> cumulative;
  double sum = 0.0;
  for (const int32_t token : order) {
    sum += std::exp((logits[static_cast<size_t>(token)] - largest) / options.temperature);
    cumulative.push_back(sum);
  }
  const auto found = std::upper_bound(cumulative.begin(), cumulative.end(), uniform * sum);
  // uniform * sum can round up to sum: then it is the last token with a probability.
  const auto last = std::lower_bound(cumulative.begin(), cumulative.end(), sum);
  return order[static_cast<size_t>(std::min(found, last) - cumulative.begin())];
}

Sampler::Sampler(Gpt& model, std::vector<int32_t> prompt, const SamplerOptions& options)
    : model_(model), text_(std::move(prompt)), options_(options) {
  HALFTONE_CHECK(!text_.empty(), "sampler: the prompt is empty, expected at least one token");
  HALFTONE_CHECK(std::isfinite(options.temperature) && options.temperature >= 0.0,
                 "sampler: temperature ",
                 options.temperature,
                 ", expected a number of at least 0");
  HALFTONE_CHECK(
      options.top_k >= 0, "sampler: top_k ", options.top_k, ", expected at least 0 (0: all)");
  for (const int32_t token : text_) {
    HALFTONE_CHECK(token >= 0 && token < model.options().vocab,
                   "sampler: token ",
                   token,
                   " is outside of the vocabulary of ",
                   model.options().vocab);
  }
}

int32_t Sampler::next() {
  const NoGrad off;
  const StepScope step;
  const int64_t length = std::min(std::ssize(text_), model_.options().context);
  const std::vector<int32_t> window(text_.end() - length, text_.end());
  const Tensor tokens =
      to_device(Tensor::from(window, {1, length}), model_.parameters().buffers().weights.device());
  const std::vector<double> logits = model_.next_logits(tokens).to_doubles();
  const RandomStream stream{philox_key(options_.seed, "sampler")};
  const auto vocab = static_cast<size_t>(model_.options().vocab);
  text_.push_back(
      pick_token(std::span(logits).first(vocab), options_, double{uniform(stream.draw(drawn_++))}));
  return text_.back();
}

}  // namespace halftone
