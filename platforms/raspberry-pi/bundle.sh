#!/bin/bash
# bundle.sh PROGRAMS OUT [EMULATOR...]: puts into OUT what `bench` copies to a device: the benchmark
# programs of the folder PROGRAMS, every library they need with the loader that belongs to them, the
# shapes and device.sh. So the device needs nothing installed and may run any Linux. EMULATOR runs
# programs of the device's architecture here.
set -euo pipefail
programs=$1 out=$2
shift 2
emulator=("$@")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)

new=$out.new.$$
trap 'rm -rf "$new"' EXIT
mkdir -p "$new/bin" "$new/lib" "$new/shapes"
for program in ffn_bench roofline_bench; do
  cp "$programs/$program" "$new/bin/"
  loader=$(LC_ALL=C readelf -l "$programs/$program" | sed -n 's/.*interpreter: \(.*\)\]/\1/p')
  [[ -e $loader ]] || {
    echo "bundle.sh: $programs/$program needs $loader, which is not here" >&2
    exit 1
  }
  cp -L "$loader" "$new/lib/ld.so"
  "${emulator[@]}" "$loader" --list "$programs/$program" >"$new/list" || {
    echo "bundle.sh: the libraries of $programs/$program cannot be listed" >&2
    exit 1
  }
  while read -r library; do
    cp -L "$library" "$new/lib/"
  done < <(sed -n 's/.* => \(\/[^ ]*\) (.*/\1/p' "$new/list")
  rm "$new/list"
done
cp "$here"/../../bench/shapes/*.txt "$new/shapes/"
cp "$here/device.sh" "$new/"
rm -rf "$out"
mv "$new" "$out"
trap - EXIT
