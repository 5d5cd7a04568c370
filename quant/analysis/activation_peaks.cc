#include "quant/analysis/activation_peaks.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sluice {
namespace {

// Enough values for a median to three digits.
constexpr size_t kMedianSample = size_t{1} << 16;

double Over(double a, double b) { return b > 0 ? a / b : std::numeric_limits<double>::infinity(); }

double MedianOf(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

// Of |·|, from values as far apart as it takes to look at about kMedianSample.
double MedianMagnitude(const DoubleMatrix& values) {
  const auto all = static_cast<size_t>(values.size());
  // Odd, so that it does not keep to some of the channels.
  const size_t step = all / kMedianSample | 1;
  std::vector<double> sample;
  sample.reserve(all / step + 1);
  for (size_t i = 0; i < all; i += step) sample.push_back(std::fabs(values.data()[i]));
  return MedianOf(sample);
}

// The largest and the next largest magnitude of a channel.
struct ChannelTop {
  size_t channel = 0;
  size_t token = 0;
  double largest = 0;
  double next = 0;

  double over_channel() const { return Over(largest, next); }
};

std::vector<ChannelTop> TopOfChannels(const DoubleMatrix& values) {
  std::vector<ChannelTop> tops(static_cast<size_t>(values.cols()));
  for (size_t c = 0; c < tops.size(); ++c) tops[c].channel = c;
  for (Eigen::Index t = 0; t < values.rows(); ++t) {
    for (Eigen::Index c = 0; c < values.cols(); ++c) {
      const double magnitude = std::fabs(values(t, c));
      ChannelTop& top = tops[static_cast<size_t>(c)];
      if (magnitude <= top.next) continue;
      top.next = std::min(magnitude, top.largest);
      if (magnitude <= top.largest) continue;
      top.largest = magnitude;
      top.token = static_cast<size_t>(t);
    }
  }
  return tops;
}

ActivationPeak PeakOf(ActivationSite site, const ChannelTop& top, const DoubleMatrix& values,
                      double median) {
  return {
      .site = site,
      .token = top.token,
      .channel = top.channel,
      .value = values(static_cast<Eigen::Index>(top.token), static_cast<Eigen::Index>(top.channel)),
      .over_median = Over(top.largest, median),
      .over_channel = top.over_channel()};
}

}  // namespace

std::string_view Name(ActivationSite site) {
  switch (site) {
    case ActivationSite::kInput:
      return "input";
    case ActivationSite::kHidden:
      return "hidden";
    case ActivationSite::kOutput:
      return "output";
  }
  return "";
}

std::vector<ActivationPeak> FindPeaks(ActivationSite site, const DoubleMatrix& values,
                                      size_t count) {
  if (values.size() == 0 || !values.allFinite()) return {};
  std::vector<ChannelTop> tops = TopOfChannels(values);
  std::erase_if(tops, [](const ChannelTop& top) { return top.largest == 0; });
  std::ranges::stable_sort(tops, std::greater(), &ChannelTop::largest);
  if (tops.size() > count) tops.resize(count);
  if (tops.empty()) return {};
  const double median = MedianMagnitude(values);
  std::vector<ActivationPeak> peaks;
  peaks.reserve(tops.size());
  for (const ChannelTop& top : tops) peaks.push_back(PeakOf(site, top, values, median));
  return peaks;
}

std::vector<ActivationPeak> FindSpikes(ActivationSite site, const DoubleMatrix& values,
                                       size_t count) {
  if (static_cast<size_t>(values.rows()) < kSpikeTokens || !values.allFinite()) return {};
  std::vector<ChannelTop> tops = TopOfChannels(values);
  std::vector<double> channel(static_cast<size_t>(values.rows()));
  std::erase_if(tops, [&](const ChannelTop& top) {
    // A channel that is 0 but for one token is rare, and no spike.
    if (top.next == 0 || top.over_channel() < kSpikeOverChannel) return true;
    const auto column = values.col(static_cast<Eigen::Index>(top.channel));
    std::ranges::transform(column, channel.begin(), [](double v) { return std::fabs(v); });
    return Over(top.largest, MedianOf(channel)) < kSpikeOverMedian;
  });
  std::ranges::stable_sort(tops, std::greater(), &ChannelTop::over_channel);
  if (tops.size() > count) tops.resize(count);
  if (tops.empty()) return {};
  const double median = MedianMagnitude(values);
  std::vector<ActivationPeak> spikes;
  spikes.reserve(tops.size());
  for (const ChannelTop& top : tops) spikes.push_back(PeakOf(site, top, values, median));
  return spikes;
}

std::optional<SuperWeight> FindSuperWeight(const DoubleMatrix& hidden, const DoubleMatrix& output,
                                           MatrixView<const float> trained,
                                           MatrixView<const float> stored) {
  const std::vector<ActivationPeak> peaks = FindPeaks(ActivationSite::kOutput, output, 1);
  if (peaks.empty() || !IsMassive(peaks[0])) return std::nullopt;
  const auto h = hidden.row(static_cast<Eigen::Index>(peaks[0].token));
  Eigen::Index neuron = 0;
  h.cwiseAbs().maxCoeff(&neuron);
  SuperWeight weight = {.row = peaks[0].channel,
                        .column = static_cast<size_t>(neuron),
                        .token = peaks[0].token,
                        .output = peaks[0].value};
  weight.trained = static_cast<double>(trained.row(weight.row)[weight.column]);
  weight.stored = static_cast<double>(stored.row(weight.row)[weight.column]);
  weight.share = h(neuron) * weight.trained / weight.output;
  return weight.share >= 0.5 ? std::optional(weight) : std::nullopt;
}

}  // namespace sluice
