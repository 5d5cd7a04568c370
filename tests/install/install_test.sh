#!/bin/bash
# install_test.sh SOURCE BUILD CXX: installs the build into a folder of its own, moves that folder, and
# builds a program against it twice, by find_package and by pkg-config. Both must run, and agree.
set -euo pipefail
source_dir=$1 build_dir=$2 cxx=$3
here=$source_dir/tests/install

work=$(mktemp -d "${TMPDIR:-/tmp}/sluice-install.XXXXXX")
trap 'rm -rf "$work"' EXIT
fail() {
  echo "FAILED: $*" >&2
  exit 1
}

cmake --install "$build_dir" --prefix "$work/first" >"$work/install.log" || {
  cat "$work/install.log"
  fail "cmake --install"
}
mv "$work/first" "$work/prefix" # what is installed may be moved
prefix=$work/prefix

for file in bin/sluice include/sluice/sluice.h; do
  [[ -f $prefix/$file ]] || fail "$file was not installed"
done
config=$(find "$prefix" -name sluiceConfig.cmake) package=$(find "$prefix" -name sluice.pc)
[[ -n $config && -n $package ]] || fail "sluiceConfig.cmake or sluice.pc was not installed"
if grep -rlF -e "$source_dir/" -e "$build_dir/" --include='*.cmake' --include='*.pc' --include='*.h' \
  "$prefix"; then
  fail "these installed files name the tree they were built from"
fi

"$prefix/bin/sluice" quantize "$source_dir/tests/data/tiny-llama" -o "$work/model.safetensors" \
  --weights qb4w:32 || fail "the installed command"

build_consumer() {
  cmake -S "$here/consumer" -B "$work/cmake" -DCMAKE_CXX_COMPILER="$cxx" \
    -DCMAKE_PREFIX_PATH="$prefix" && cmake --build "$work/cmake"
}
build_consumer >"$work/cmake.log" 2>&1 || {
  cat "$work/cmake.log"
  fail "a program that uses find_package(sluice)"
}

export PKG_CONFIG_PATH=${package%/*}
read -ra flags <<<"$(pkg-config --cflags --libs sluice)"
"$cxx" -std=c++23 "$here/consumer/main.cc" "${flags[@]}" -o "$work/by_pkg_config" ||
  fail "a program that uses pkg-config"

# README's program, as a reader would copy it. Without a file it says so and does not crash.
# shellcheck disable=SC2016 # Markdown's backticks
sed -n '/^```cpp$/,/^```$/{/^```/!p}' "$source_dir/README.md" >"$work/readme.cc"
"$cxx" -std=c++23 "$work/readme.cc" "${flags[@]}" -o "$work/readme" || fail "README's program"
mkdir "$work/empty" && cp "$work/model.safetensors" "$work/model.sluice.safetensors"
status=0
said=$(cd "$work/empty" && "$work/readme" 2>&1) || status=$?
[[ $status == 1 && $said == "model.sluice.safetensors: "* ]] ||
  fail "README's program without a file: status $status, $said"
(cd "$work" && "$work/readme") || fail "README's program"

by_cmake=$("$work/cmake/consumer" "$work/model.safetensors") || fail "the program by find_package"
by_pkg_config=$("$work/by_pkg_config" "$work/model.safetensors") || fail "the program by pkg-config"
echo "$by_cmake"
[[ $by_cmake == "$by_pkg_config" ]] || fail "by pkg-config it printed: $by_pkg_config"
for backend in highway xnnpack reference; do
  [[ $by_cmake == *"$backend "* ]] || fail "the backend $backend did not run"
done
highway=$(sed -n 's/^highway //p' <<<"$by_cmake")
reference=$(sed -n 's/^reference //p' <<<"$by_cmake")
[[ $highway == "$reference" ]] || fail "highway and reference differ: $highway, $reference"
echo "PASSED"
