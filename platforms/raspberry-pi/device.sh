#!/bin/sh
# device.sh: what runs on the device. It lies in the folder that `bench` copied over and that `bench`
# removes again; plain sh, since nothing may be installed there. All settings come by the environment:
#
#   KIT_MODELS KIT_FORMATS KIT_TOKENS KIT_MIN_TIME KIT_REPETITIONS  what is measured, and how long
#   KIT_GOVERNOR   the CPU governor for the run; it is set back at the end. Empty: left alone
#   KIT_EMULATOR   put before each program, for tests
#   KIT_CACHE_MIB  what the last-level cache is taken to be, if not what the system says; for tests
#   KIT_ROOT       where /sys and /proc are looked for, for tests
#
# Each model's results are complete or not there, so a run that was interrupted goes on where it was.
# `progress` grows by a line for each step; the last line begins with "done" or "failed".
set -u
cd "$(dirname "$0")" || exit 1
mkdir -p results || exit 1
echo $$ >runner.pid

say() { printf '%s\n' "$*" >>progress; }
fail() {
  say "failed: $*"
  exit 1
}

governor_files() { ls -d "$KIT_ROOT"/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor 2>/dev/null; }

# set_governor NAME: returns 1 if that is not permitted.
set_governor() {
  for file in $(governor_files); do
    if [ -w "$file" ]; then
      printf '%s\n' "$1" >"$file" || return 1
    else
      printf '%s\n' "$1" | sudo -n tee "$file" >/dev/null 2>&1 || return 1
    fi
  done
}

governor_was=''
restore_governor() {
  [ -z "$governor_was" ] || set_governor "$governor_was" || say "the governor could not be set back to $governor_was"
  governor_was=''
}

change_governor() {
  [ -n "$KIT_GOVERNOR" ] || return 0
  first=$(governor_files | head -n 1)
  [ -n "$first" ] || fail "this device has no CPU governor to set to $KIT_GOVERNOR"
  was=$(cat "$first")
  [ "$was" != "$KIT_GOVERNOR" ] || return 0
  governor_was=$was # before the change, so that half of one is undone too
  set_governor "$KIT_GOVERNOR" || {
    restore_governor
    fail "the governor cannot be set to $KIT_GOVERNOR: that needs root or sudo without a password"
  }
  say "the governor is $KIT_GOVERNOR for this run; it was $was"
}

# program NAME ARGUMENT...: with the libraries that came along, whatever the device has. Takes the place of
# the subshell that it is called in, so that a signal to that reaches it.
program() {
  name=$1
  shift
  # shellcheck disable=SC2086 # the emulator has arguments
  exec $KIT_EMULATOR lib/ld.so --library-path lib "bin/$name" "$@" ${governor_was:+"--governor-was=$governor_was"} \
    ${KIT_ROOT:+"--device-root=$KIT_ROOT"} ${KIT_CACHE_MIB:+"--cache-mib=$KIT_CACHE_MIB"}
}

# measure NAME WHAT PROGRAM ARGUMENT...: results/NAME.json, or results/NAME.failed with a reason.
measure() {
  result=results/$1 what=$2
  shift 2
  [ ! -e "$result.json" ] || return 0
  say "measuring $what"
  rm -f "$result.failed"
  program "$@" --benchmark_out="$result.part" --benchmark_out_format=json >"$result.log" 2>&1 &
  child=$!
  wait "$child"
  status=$?
  # A case that failed is in the JSON, with its reason, beside those that did not.
  if [ -s "$result.part" ] && { [ "$status" = 0 ] || [ "$status" = 1 ]; }; then
    mv "$result.part" "$result.json"
  else
    rm -f "$result.part"
    { [ "$status" -lt 128 ] || echo "ended by signal $((status - 128)); $(tail -n 1 "$result.log")"; } >"$result.failed"
    [ -s "$result.failed" ] || tail -n 1 "$result.log" >"$result.failed"
    say "$what failed: $(cat "$result.failed")"
  fi
  rm -f "$result.log"
}

child=''
trap 'restore_governor' EXIT
trap '[ -z "$child" ] || kill "$child" 2>/dev/null; exit 143' HUP INT TERM

change_governor
measure roofline "the limits" roofline_bench --benchmark_min_time=0.02s \
  --benchmark_repetitions=3
for model in $KIT_MODELS; do
  measure "$model" "$model" ffn_bench --shapes-folder=shapes --shapes="$model" --formats="$KIT_FORMATS" \
    --tokens="$KIT_TOKENS" --cold --warm --benchmark_min_time="$KIT_MIN_TIME" \
    --benchmark_repetitions="$KIT_REPETITIONS" --benchmark_enable_random_interleaving=true
done
restore_governor
say "done"
