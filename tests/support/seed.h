// Replayable randomness: every random test prints its seed, and SLUICE_TEST_SEED sets it.
#ifndef SLUICE_TESTS_SUPPORT_SEED_H_
#define SLUICE_TESTS_SUPPORT_SEED_H_

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>

namespace sluice::test {

// A generator for one test; the seed is drawn afresh for each process unless SLUICE_TEST_SEED is
// set.
class Random {
 public:
  Random() : seed_(Seed()), engine_(seed_) {
    std::cout << "[   SEED   ] SLUICE_TEST_SEED=" << seed_ << std::endl;
  }
  uint64_t seed() const { return seed_; }
  std::mt19937_64& engine() { return engine_; }

  float Normal(float deviation = 1.0f) {
    return std::normal_distribution<float>(0.0f, deviation)(engine_);
  }
  // Uniform in [low, high].
  int Integer(int low, int high) { return std::uniform_int_distribution<int>(low, high)(engine_); }

 private:
  static uint64_t Seed() {
    const char* set = std::getenv("SLUICE_TEST_SEED");
    return set != nullptr ? std::strtoull(set, nullptr, 10) : std::random_device()();
  }
  uint64_t seed_;
  std::mt19937_64 engine_;
};

}  // namespace sluice::test

#endif  // SLUICE_TESTS_SUPPORT_SEED_H_
