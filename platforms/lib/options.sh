# The command line: run's own options, then the command, then the command's arguments.

usage() {
  cat <<'END'
./platforms/run [--arch arm64|armhf [--cpu MODEL]] COMMAND [ARGUMENT...]

Sets up what is missing (on Debian 13 or later by apt-get, elsewhere in a private Debian 13 under
$XDG_CACHE_HOME/sluice), then runs COMMAND:

  demo              quantize the bundled model in several formats, print the error table and this
                    machine's speed, write build/demo/report.html and report.json
  build [TARGET...] build everything, or the named targets
  test [ARG...]     build, then run every test; arguments go to ctest
  test-real [ARG..] download three real models by their package names and check the job end to end
  sluice ARG...     run the built `sluice` on your files, building first if needed
  package           make a Debian package, and print where it is
  bench [ARG...]    measure blocks, as one table, and write build/bench/results.json; bench --help;
                    `bench kernels` and `bench roofline` run those programs
  test-kit          try platforms/raspberry-pi/bench against an ssh server on this machine
  test-page         try the report's page in a browser, and put screenshots into build/page
  format [--check]  format all sources, or only say which are not
  lint [FILE...]    clang-tidy, the layer rule, names
  train [ARG...]    train the bundled model anew
  shell [COMMAND..] a shell, or one command, in the environment
  remove-root       remove the private Debian 13

  --arch ARCH       cross build for arm64 or armhf into build/ARCH, and run that under qemu
  --cpu MODEL       the CPU that qemu plays: cortex-a53, cortex-a72, cortex-a76, neoverse-v1, max…

Environment variables:
  SLUICE_PRESET      build and test this CMake preset instead of `release` (debug, asan-ubsan, tsan)
  SLUICE_CMAKE_ARGS  more arguments for CMake, as in "-DSLUICE_WERROR=ON"
  SLUICE_MIRROR      the Debian mirror to make the private root from
  SLUICE_JOBS        how many jobs to run at a time; all CPUs if not given
END
}

# Sets: arch (empty: this machine's), cpu, preset, command, arguments.
parse_options() {
  arch='' cpu=''
  all_arguments=("$@")
  while (($#)); do
    case $1 in
      --help | -h)
        usage
        exit 0
        ;;
      --arch | --cpu)
        (($# >= 2)) || usage_error "$1 needs a value"
        printf -v "${1#--}" '%s' "$2"
        shift 2
        ;;
      --arch=* | --cpu=*)
        local option=${1%%=*}
        printf -v "${option#--}" '%s' "${1#*=}"
        shift
        ;;
      -*) usage_error "unknown option $1" ;;
      *) break ;;
    esac
  done
  (($#)) || usage_error "no command given"
  command=$1
  shift
  arguments=("$@")

  case $command in
    demo | build | test | test-real | test-kit | test-page | sluice | package | bench | format | lint | \
      train | shell | remove-root) ;;
    *) usage_error "unknown command $command" ;;
  esac
  # These pass nothing on to a program that would explain itself.
  case $command in
    demo | build | test-real | test-kit | test-page | package | format | lint | remove-root)
      if [[ ${arguments[0]:-} == --help || ${arguments[0]:-} == -h ]]; then
        usage
        exit 0
      fi
      ;;
  esac
  case $arch in
    '' | arm64 | armhf) ;;
    *) usage_error "unknown architecture $arch; known are arm64 and armhf" ;;
  esac
  if [[ -n $cpu && -z $arch ]]; then
    usage_error "--cpu needs --arch"
  fi
  if [[ -n $arch && $arch == "$(machine_architecture)" && -z $cpu ]]; then
    arch='' # it is this machine's own
  fi
  if [[ -n $arch ]]; then
    case $command in
      build | test | test-kit | sluice | package | bench | shell) ;;
      *) usage_error "$command does not take --arch" ;;
    esac
    [[ -z ${SLUICE_PRESET:-} ]] || usage_error "--arch and SLUICE_PRESET exclude each other"
  fi
  preset=${arch:-${SLUICE_PRESET:-release}}
}

machine_architecture() {
  case $(uname -m) in
    x86_64) echo amd64 ;;
    aarch64) echo arm64 ;;
    armv7l | armv8l) echo armhf ;;
    *) uname -m ;;
  esac
}
