# Configuring and building. By now the packages are here.

# Another checkout of the same sources, CI's for one, finds what this one compiled.
export CCACHE_BASEDIR=$top CCACHE_NOHASHDIR=1

build_dir() { echo "$top/build/$preset"; }

jobs_flag() { echo "-j${SLUICE_JOBS:-$(nproc)}"; }

# ensure_configured: runs CMake if the tree is new, or its options differ from the last time's.
ensure_configured() {
  local dir options=()
  dir=$(build_dir)
  read -ra options <<<"${SLUICE_CMAKE_ARGS:-}"
  if [[ -n $arch ]]; then options+=("-DSLUICE_CPU=${cpu:-max}"); fi
  local wanted="$preset ${options[*]}"
  if [[ -e $dir/build.ninja && $(cat "$dir/.configured-as" 2>/dev/null) == "$wanted" ]]; then return; fi
  (cd "$top" && run_step cmake --preset "$preset" "${options[@]}") || return
  printf '%s' "$wanted" >"$dir/.configured-as"
}

# A long step: its output to stderr, and a signal ends it with us.
run_step() { run_forwarding "$@" >&2; }

with_build_lock() {
  mkdir -p "$(build_dir)" || die "cannot write to $top/build"
  exec 7>"$(build_dir)/.lock"
  flock -n 7 || {
    say "another run is building in $(build_dir); waiting for it"
    flock 7
  }
  "$@" 7>&-
  local status=$?
  exec 7>&-
  return "$status"
}

# build TARGET...: says nothing and does nothing if all is built already.
build() { with_build_lock build_locked "$@" || die "building failed"; }

build_locked() {
  ensure_configured || return
  local plan
  plan=$(ninja -C "$(build_dir)" -n "$@" 2>&1) || true
  if [[ $plan == *'no work to do'* ]]; then return; fi
  say "building in $(build_dir)"
  run_step ninja -C "$(build_dir)" "$(jobs_flag)" "$@"
}
