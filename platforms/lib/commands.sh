# What each command does, once the environment is there.

run_command() {
  case $command in
    build) build "${arguments[@]}" ;;
    test) command_test ;;
    test-real)
      build sluice
      SLUICE="'$(build_dir)/bin/sluice'" run_forwarding python3 "$top/tests/real/test_real.py" "${arguments[@]}"
      ;;
    sluice) command_sluice ;;
    demo)
      build sluice
      run_forwarding python3 "$top/platforms/demo.py" "$(build_dir)/bin/sluice" "${arguments[@]}"
      ;;
    package) command_package ;;
    test-kit) command_test_kit ;;
    test-page) command_test_page ;;
    bench) command_bench ;;
    format) "$top/platforms/format.sh" "${arguments[@]}" ;;
    lint) command_lint ;;
    train) run_forwarding python3 "$top/tests/data/train/train.py" "${arguments[@]}" ;;
    shell) command_shell ;;
  esac
}

command_test() {
  build
  cd "$top"
  local ctest=(ctest --preset "$preset" "$(jobs_flag)" "${arguments[@]}")
  exec "${ctest[@]}"
}

command_sluice() {
  build sluice
  local emulator
  read -ra emulator <<<"$(emulator_words)"
  exec "${emulator[@]}" "$(build_dir)/bin/sluice" "${arguments[@]}"
}

# What has to precede a program of another architecture.
emulator_words() {
  case $arch in
    arm64) echo "qemu-aarch64 -L / -cpu ${cpu:-max}" ;;
    armhf) echo "qemu-arm -L / -cpu ${cpu:-max}" ;;
  esac
}

command_shell() {
  if ((${#arguments[@]})); then exec "${arguments[@]}"; fi
  say "Debian $(cat /etc/debian_version) with everything to build sluice; leave with exit"
  exec bash
}

command_package() {
  build sluice sluice_all ffn_bench roofline_bench kernels_bench man_pages
  local package
  rm -f "$(build_dir)"/package/*.deb
  # dpkg-shlibdeps looks for the libraries of the architecture that this names.
  (cd "$(build_dir)" && DEB_HOST_ARCH=${arch:-$(machine_architecture)} run_step cpack -G DEB) ||
    die "making the package failed"
  for package in "$(build_dir)"/package/*.deb; do echo "$package"; done
}

# Against the programs that were built, and the host's ssh client and server.
command_test_kit() {
  build ffn_bench roofline_bench
  local words
  words=$(emulator_words)
  run_forwarding python3 "$top/tests/platforms/raspberry_pi_test.py" "$(build_dir)" "$words"
}

command_test_page() {
  build sluice
  SLUICE="'$(build_dir)/bin/sluice'" SLUICE_NEEDS_BROWSER=1 SLUICE_SCREENSHOTS="$top/build/page" \
    run_forwarding python3 "$top/tests/quant/cli/page_test.py"
}

# All of it, even if one part finds something.
command_lint() {
  local failed=()
  with_build_lock ensure_configured || die "configuring failed"
  run_forwarding python3 "$top/platforms/lint.py" "$(build_dir)" "${arguments[@]}" ||
    failed+=(clang-tidy)
  python3 "$top/tests/tools/check_layers.py" || failed+=(layers)
  python3 "$top/tests/tools/check_names.py" || failed+=(names)
  (cd "$top" && shellcheck -x -a platforms/run platforms/*.sh platforms/lib/add_packages.sh \
    platforms/package/*.sh platforms/raspberry-pi/{bench,device.sh,bundle.sh} .ci/run \
    tests/*/*.sh) || failed+=(shellcheck)
  ((${#failed[@]} == 0)) || die "lint found something: ${failed[*]}"
}

# `bench kernels` and `bench roofline` run these programs; anything else is blocks, as one table.
command_bench() {
  if rivals_wanted; then
    SLUICE_CMAKE_ARGS+=" -DSLUICE_BENCH_ONEDNN=ON -DSLUICE_BENCH_ONNXRUNTIME=ON"
  fi
  local program=ffn emulator=() words
  case ${arguments[0]:-} in
    kernels | roofline)
      program=${arguments[0]}
      arguments=("${arguments[@]:1}")
      ;;
  esac
  build "${program}_bench"
  words=$(emulator_words)
  read -ra emulator <<<"$words"
  if [[ $program == ffn ]]; then
    run_forwarding python3 "$top/bench/run.py" --programs "$(build_dir)/bench" --emulator "$words" \
      "${arguments[@]}"
  else
    run_forwarding "${emulator[@]}" "$(build_dir)/bench/${program}_bench" "${arguments[@]}"
  fi
}
