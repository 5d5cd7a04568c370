#!/bin/bash
# man_pages.sh OUT VERSION SLUICE BENCH_FOLDER [EMULATOR...]: writes a man page for the command, each of
# its subcommands and each benchmark into OUT, compressed, from what their --help says.
set -euo pipefail
out=$1 version=$2 sluice=$3 bench=$4
shift 4
emulator=("$@")

command -v help2man >/dev/null || {
  echo "man_pages.sh: help2man is not installed" >&2
  exit 1
}
work=$(mktemp -d "${TMPDIR:-/tmp}/sluice-man.XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/pages"

# page NAME SUMMARY COMMAND...: help2man runs a program of the page's name, and takes no arguments. In what
# it says, the installed name stands in place of the built one, and no number of this machine's threads.
page() {
  local name=$1 summary=$2
  shift 2
  printf '#!/bin/bash\nset -o pipefail\n%s"$@" | sed -E -e %q -e %q\n' "$(printf '%q ' "${emulator[@]}" "$@")" \
    "s/\\b(ffn|roofline|kernels)_bench\\b/sluice-\\1-bench/" "s/(--threads N[^ ]*) \\[[0-9]+\\]/\\1/" >"$work/$name"
  chmod +x "$work/$name"
  help2man --no-info --no-discard-stderr --section=1 --source="sluice $version" \
    --version-string="$version" --name="$summary" --output="$work/pages/$name.1" "$work/$name"
  gzip -9n "$work/pages/$name.1"
}

page sluice "feed-forward blocks of language models in int8 and int4" "$sluice"
# The subcommands and what each is for, as the command itself lists them.
"${emulator[@]}" "$sluice" --help | sed -nE 's/^  ([a-z]+)  +([A-Z].*[^.])\.?$/\1\t\2/p' >"$work/list"
[[ -s $work/list ]] || {
  echo "man_pages.sh: $sluice --help lists no subcommands" >&2
  exit 1
}
while IFS=$'\t' read -r command summary; do
  page "sluice-$command" "${summary,}" "$sluice" "$command" </dev/null
done <"$work/list"
page sluice-ffn-bench "how fast whole feed-forward blocks are" "$bench/ffn_bench"
page sluice-roofline-bench "what this machine's memory, arithmetic and threads reach" \
  "$bench/roofline_bench"
page sluice-kernels-bench "how fast single kernels are" "$bench/kernels_bench"

rm -rf "$out"
mv "$work/pages" "$out"
