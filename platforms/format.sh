#!/bin/bash
# format.sh [--check]: formats every C++ source by .clang-format, or only names those that differ.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

mode=(-i)
case ${1:-} in
  '') ;;
  --check) mode=(--dry-run -Werror) ;;
  *)
    echo "format: unknown argument $1; known is --check" >&2
    exit 2
    ;;
esac
find include src quant tests bench -type f \( -name '*.h' -o -name '*.cc' \) -print0 |
  xargs -0 -r clang-format "${mode[@]}" || {
  echo "format: the files above differ; ./platforms/run format rewrites them" >&2
  exit 1
}
