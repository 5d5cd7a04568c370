#!/bin/bash
# package_test.sh [ARCH]: makes the Debian package, for ARCH (arm64) if given; holds it against Debian's rules;
# installs it in a new Debian 13 root of that architecture with the packages that it names; and runs what
# was installed, under an emulator if need be. .ci/run calls it; needs the network.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
arch=${1:-}

if [[ -z ${SLUICE_INSIDE:-} ]]; then
  run=("$top/platforms/run")
  if [[ -n $arch ]]; then run+=(--arch "$arch"); fi
  package=$("${run[@]}" package)
  echo "made $package"
  exec "${run[@]}" shell env SLUICE_INSIDE=1 "${BASH_SOURCE[0]}" "$package" "$(uname -m)"
fi

package=$1 machine=$2
passed=0 failed=0
check() { # NAME COMMAND...
  local name=$1
  shift
  if "$@" >"$work/log" 2>&1; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    printf 'FAILED: %s: %s\n' "$name" "$*" >&2
    tail -n 20 "$work/log" >&2
  fi
}
work=$(mktemp -d "${TMPDIR:-/tmp}/sluice-package.XXXXXX")
trap 'rm -rf "$work"' EXIT

architecture=$(dpkg-deb -f "$package" Architecture)
lintian=(lintian --fail-on error)
if ((EUID == 0)); then lintian+=(--allow-root); fi
check "Debian's rules" "${lintian[@]}" "$package"

# shellcheck disable=SC2016
check "apt will not take another package of Debian's for a newer version" bash -c \
  '[[ $(dpkg-deb -f "$1" Package) == sluice-ffn && $(dpkg-deb -f "$1" Conflicts) == sluice ]]' _ "$package"

# Foreign maintainer scripts cannot run here, so dpkg runs them outside, by DPKG_ROOT: that is what
# Debian's own packages are made for. apt takes it from a
# repository of one package, beside Debian's.
root=$work/root
mkdir "$work/repository"
cp "$package" "$work/repository/"
(cd "$work/repository" && dpkg-scanpackages --multiversion . >Packages 2>/dev/null)
# shellcheck disable=SC2016
source_hook='mkdir -p "$1/etc/apt/sources.list.d" && echo "deb [trusted=yes] copy:'$work'/repository ./" >"$1/etc/apt/sources.list.d/sluice.list"'
check "it installs with the packages it names" fakeroot mmdebstrap --mode=chrootless --variant=apt \
  --architectures="$architecture" --components=main --aptopt='Acquire::Retries "3"' \
  --aptopt='Acquire::Languages "none"' --dpkgopt=force-unsafe-io --setup-hook="$source_hook" --include=sluice-ffn trixie "$root" \
  ${SLUICE_MIRROR:+"$SLUICE_MIRROR"}
[[ -d $root/usr ]] || exit 1 # nothing else can be tried
# shellcheck disable=SC2016
check "dpkg calls it installed" bash -c '[[ $(dpkg-query --root="$1" -W -f "\${db:Status-Status}" sluice-ffn) == installed ]]' _ "$root"

# The root's own loader and libraries, nothing of this machine's.
case $architecture in
  amd64) loader=lib64/ld-linux-x86-64.so.2 triplet=x86_64-linux-gnu emulator=() ;;
  arm64) loader=lib/ld-linux-aarch64.so.1 triplet=aarch64-linux-gnu emulator=(qemu-aarch64 -cpu cortex-a76) ;;
  armhf) loader=lib/ld-linux-armhf.so.3 triplet=arm-linux-gnueabihf emulator=(qemu-arm -cpu cortex-a15) ;;
esac
case $architecture/$machine in arm64/aarch64 | armhf/aarch64) emulator=() ;; esac
installed() { # NAME ARGUMENT...
  local name=$1
  shift
  "${emulator[@]}" "$root/$loader" --library-path "$root/usr/lib/$triplet:$root/usr/lib/$triplet/blas" \
    "$root/usr/bin/$name" "$@"
}
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
model=$work/model.safetensors
check "the command says what CPU it finds" installed sluice cpu
check "it quantizes" installed sluice quantize "$tree/tests/data/tiny-llama" -o "$model" --weights qb4w:32 --quiet
check "what it wrote is whole" installed sluice inspect "$model" --verify --quiet
check "the benchmark finds its shapes" installed sluice-ffn-bench "--shapes-folder=$root/usr/share/sluice/shapes" \
  --shapes=SmolLM2-135M --formats=qc8w --tokens=1 --threads=1 --cache-mib=1 --benchmark_min_time=1x \
  --benchmark_out="$work/bench.json"
check "its JSON has the device" python3 -c 'import json, sys
json.load(open(sys.argv[1]))["context"]["device"]["samples"]' "$work/bench.json"
check "the limits can be measured" installed sluice-roofline-bench --cache-mib=0.5 --benchmark_filter=dram/4k/streams:1/ \
  --benchmark_min_time=1x
check "the kernels can be measured" installed sluice-kernels-bench --benchmark_list_tests
# From the package itself: a private root's dpkg leaves man pages out.
dpkg-deb -x "$package" "$work/plain"
for page in sluice sluice-quantize sluice-report sluice-inspect sluice-run sluice-unpack sluice-bench sluice-cpu \
  sluice-ffn-bench sluice-roofline-bench sluice-kernels-bench; do
  # shellcheck disable=SC2016
  check "there is a man page of $page" bash -c 'zcat "$1" | grep -q "^\.SH DESCRIPTION"' _ \
    "$work/plain/usr/share/man/man1/$page.1.gz"
done
# shellcheck disable=SC2016
check "no man page names the tree it was made in" bash -c '! zcat "$1"/*.gz | grep -F "$2"' _ \
  "$work/plain/usr/share/man/man1" "$tree"
for file in usr/lib/libsluice.a usr/include/sluice/sluice.h usr/lib/pkgconfig/sluice.pc; do
  check "$file is there" test -s "$root/$file"
done

printf '%d passed, %d failed\n' "$passed" "$failed"
((failed == 0))
