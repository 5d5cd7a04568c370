// Whether an operator of XNNPACK computes what it should on this CPU.
#ifndef SLUICE_SRC_BACKENDS_XNNPACK_CHECK_H_
#define SLUICE_SRC_BACKENDS_XNNPACK_CHECK_H_

#include "src/backends/xnnpack_operators.h"

namespace sluice {

// Runs the operator once on a small matrix, for 1 to 17 tokens, and compares with sums in double.
// The answer is kept for the life of the process; later calls cost nothing. XNNPACK must be
// initialized.
//
// The reason is a fault in the version that Debian 13 ships: on CPUs with AMX its qd8_f32_qc4w
// returns garbage and success. That kernel unpacks the nibbles into a buffer and loads the buffer
// with an instruction that the compiler does not know to read memory, so it drops the stores. Which
// kernel runs is XNNPACK's secret, and the next version may have other faults: so ask, not assume.
bool XnnKernelWorks(XnnKernel kernel);

}  // namespace sluice

#endif  // SLUICE_SRC_BACKENDS_XNNPACK_CHECK_H_
