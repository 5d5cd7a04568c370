# What each command does, once the environment is there.

run_command() {
  case $command in
    build) build "${arguments[@]}" ;;
    test) command_test ;;
    test-real)
      build
      run_forwarding python3 "$top/tests/real/test_real.py" "${arguments[@]}"
      ;;
    sluice) command_sluice ;;
    demo)
      build sluice
      run_forwarding "$top/platforms/demo.sh" "$(build_dir)/bin/sluice" "${arguments[@]}"
      ;;
    bench) command_bench ;;
    format) "$top/platforms/format.sh" "${arguments[@]}" ;;
    lint) command_lint ;;
    train) run_forwarding python3 "$top/tests/data/train.py" "${arguments[@]}" ;;
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
  local emulator=()
  case $arch in
    arm64) emulator=(qemu-aarch64 -L / -cpu "${cpu:-max}") ;;
    armhf) emulator=(qemu-arm -L / -cpu "${cpu:-max}") ;;
  esac
  exec "${emulator[@]}" "$(build_dir)/bin/sluice" "${arguments[@]}"
}

command_shell() {
  if ((${#arguments[@]})); then exec "${arguments[@]}"; fi
  say "Debian $(cat /etc/debian_version) with everything to build sluice; leave with exit"
  exec bash
}
