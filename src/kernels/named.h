// A kernel set that is another's in whole or in part.
#ifndef SLUICE_SRC_KERNELS_NAMED_H_
#define SLUICE_SRC_KERNELS_NAMED_H_

#include <string_view>

#include "src/kernels/kernels.h"

namespace sluice {

inline Kernels Named(std::string_view target, Kernels kernels) {
  kernels.target = target;
  return kernels;
}

}  // namespace sluice

#endif  // SLUICE_SRC_KERNELS_NAMED_H_
