// Running benchmarks with a record of the device they ran on.
#ifndef SLUICE_BENCH_DEVICE_RUN_H_
#define SLUICE_BENCH_DEVICE_RUN_H_

#include <vector>

#include "bench/limits.h"
#include "bench/options.h"
#include "quant/cli/device_log.h"
#include "quant/report/json_text.h"

namespace sluice::bench {

// The log that `options` ask for; it begins now.
DeviceLog StartDeviceLog(const Options& options);

// Measures the memory's limit for the log: one core, and all that this process may use.
Status LogDram(Limits& limits, DeviceLog& log);

// Runs the benchmarks that are registered. Google Benchmark's JSON gets more in its `context`:
// `device`, which is known only when all is over, and the members of `more`. `rest` is the command
// line that is left for Google Benchmark. What has to be said of the device goes to stderr. Returns
// whether the JSON could be completed.
bool RunBenchmarks(std::vector<char*> rest, DeviceLog& log, const Json& more);

}  // namespace sluice::bench

#endif  // SLUICE_BENCH_DEVICE_RUN_H_
