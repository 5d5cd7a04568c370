#!/bin/bash
# environment_test.sh: the environment as it really is on this machine, from outside: paths, streams,
# exit status, and how soon a second run starts. .ci/run calls it; ctest cannot, being inside already.
# shellcheck disable=SC2016 # the scripts in single quotes are for the shell inside
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
run=$top/platforms/run

passed=0 failed=0
expect() { # NAME EXPECTED ACTUAL
  if [[ $2 == "$3" ]]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf 'FAILED: %s: expected "%s", not "%s"\n' "$1" "$2" "$3" >&2
  fi
}

"$run" shell true # whatever is missing is installed now

start=$(date +%s%N)
expect "a second run says nothing" "" "$("$run" shell true 2>&1)"
milliseconds=$((($(date +%s%N) - start) / 1000000))
expect "it starts within 5 s (it took $milliseconds ms)" yes "$( ((milliseconds < 5000)) && echo yes)"

status=0
"$run" shell bash -c 'exit 37' || status=$?
expect "the exit status comes through" 37 "$status"
expect "stdin and stdout are the command's" "a b" "$(echo "a b" | "$run" shell cat)"
expect "the compiler is GCC 14 or later" yes \
  "$("$run" shell bash -c '(($(g++ -dumpversion | cut -d. -f1) >= 14)) && echo yes')"

# A folder beside the checkout, the home, and /tmp: the same paths inside, and writable.
for folder in "$(mktemp -d)" "$(mktemp -d "$HOME/.sluice-test.XXXXXX")"; do
  expect "the working directory is $folder" "$folder" "$(cd "$folder" && "$run" shell pwd)"
  "$run" shell bash -c 'echo written >"$1/file"' _ "$folder"
  expect "what is written inside is outside" written "$(cat "$folder/file" 2>&1)"
  rm -rf "$folder"
done
expect "the home is the same" "$HOME" "$("$run" shell bash -c 'cd && pwd')"
expect "the user is the same" "$(id -un)" "$("$run" shell id -un)"

printf '%d passed, %d failed\n' "$passed" "$failed"
((failed == 0))
