// Running a block and collecting its result.
#ifndef SLUICE_TESTS_SUPPORT_RUN_BLOCK_H_
#define SLUICE_TESTS_SUPPORT_RUN_BLOCK_H_

#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "sluice/ffn.h"
#include "src/ffn/ffn_impl.h"
#include "src/format/pack.h"

namespace sluice::test {

// y of a block for row-major x [tokens, d_model], through memory as unpleasant as the interface
// allows: 4-byte aligned, strides longer than rows, NaN in between. Fails the test on an error.
inline std::vector<float> RunBlock(const BlockView& block, const std::vector<float>& x,
                                   const FfnOptions& options, Output output = Output::kStore,
                                   const std::vector<float>& residual = {}) {
  const size_t d = block.d_model;
  const size_t tokens = x.size() / d;
  const size_t stride = d + 5;
  constexpr float kGuard = 12345.0f;
  std::vector<float> in(tokens * stride + 1, std::numeric_limits<float>::quiet_NaN());
  std::vector<float> out(tokens * stride + 1, kGuard);
  for (size_t t = 0; t < tokens; ++t) {
    for (size_t i = 0; i < d; ++i) {
      in[1 + t * stride + i] = x[t * d + i];
      if (!residual.empty()) out[1 + t * stride + i] = residual[t * d + i];
    }
  }
  const Expected<Ffn> ffn = CreateFfn(block, options);
  EXPECT_TRUE(ffn.has_value()) << (ffn ? "" : ffn.error().message);
  if (!ffn) return {};
  Expected<Workspace> workspace = ffn->Plan(tokens);
  EXPECT_TRUE(workspace.has_value());
  if (!workspace) return {};
  const Status status = ffn->Forward({in.data() + 1, tokens, d, stride},
                                     {out.data() + 1, tokens, d, stride}, *workspace, output);
  EXPECT_TRUE(status.has_value()) << (status ? "" : status.error().message);
  std::vector<float> y;
  for (size_t t = 0; t < tokens; ++t) {
    for (size_t i = 0; i < stride; ++i) {
      const float value = out[1 + t * stride + i];
      if (i < d) {
        y.push_back(value);
      } else {
        EXPECT_EQ(value, kGuard) << "wrote behind row " << t;
      }
    }
  }
  return y;
}

}  // namespace sluice::test

#endif  // SLUICE_TESTS_SUPPORT_RUN_BLOCK_H_
