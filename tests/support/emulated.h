// Whether the tests were built for another architecture, whose CPU an emulator plays.
#ifndef SLUICE_TESTS_SUPPORT_EMULATED_H_
#define SLUICE_TESTS_SUPPORT_EMULATED_H_

namespace sluice::test {

// Then what does not depend on the CPU may be tested on less, where it would take minutes.
inline constexpr bool kEmulated = SLUICE_TEST_EMULATED;

}  // namespace sluice::test

#endif  // SLUICE_TESTS_SUPPORT_EMULATED_H_
