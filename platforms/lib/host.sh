# The machine that `run` was started on.

# Debian 13 or later, Raspberry Pi OS included: the packages can be installed directly.
host_is_debian_13() {
  [[ -r /etc/os-release ]] || return 1
  local id version
  id=$(os_release ID)
  version=$(os_release VERSION_ID)
  case $id in debian | raspbian) ;; *) return 1 ;; esac
  # Testing and unstable have no number.
  [[ -z $version ]] || ((${version%%.*} >= 13))
}

os_release() { sed -n "s/^$1=//p" /etc/os-release | tr -d '"'; }

# For every call of apt-get: no questions, patience with a poor network and with another apt-get.
apt_options=(-q -y -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300)

host_has_apt() { command -v apt-get >/dev/null && command -v dpkg-query >/dev/null; }

# as_root COMMAND...: as root already, or by sudo; fails with 1 if there is neither.
can_be_root() {
  ((EUID == 0)) && return 0
  command -v sudo >/dev/null || return 1
  [[ -t 0 && -t 2 ]] || sudo -n true 2>/dev/null # without a terminal nobody can type a password
}
as_root() {
  if ((EUID == 0)); then "$@"; else sudo "$@"; fi
}

# install_on_host PACKAGE...: by apt-get on this very system.
install_on_host() {
  can_be_root || die "packages are missing and installing them needs root; run: sudo apt-get install $*"
  if ((EUID)) && ! sudo -n true 2>/dev/null; then
    say "asking for the sudo password, to install packages"
    sudo -v || die "sudo refused, so the missing packages cannot be installed"
  fi
  local log
  log=$(mktemp "${TMPDIR:-/tmp}/sluice-apt.XXXXXX")
  with_progress "$log" "installing by apt-get: $*" apt_install_as_root "$@" || {
    explain_failure "$log" || true
    die "apt-get failed: $failure"
  }
  rm -f "$log"
}

apt_install_as_root() {
  local apt=(as_root env DEBIAN_FRONTEND=noninteractive apt-get "${apt_options[@]}")
  "${apt[@]}" update || true # what it has may do; installing decides
  "${apt[@]}" install --no-install-recommends "$@"
}

# The host installs everything itself.
prepare_host() {
  local set sets foreign missing
  mapfile -t sets < <(package_sets)
  mapfile -t missing < <(missing_packages "${sets[@]}")
  ((${#missing[@]})) || return 0
  if [[ " ${missing[*]} " == *' openssh-server '* ]]; then
    die "test-kit needs openssh-server, which starts to serve when it is installed; install it yourself to go on"
  fi
  for set in "${sets[@]}"; do
    foreign=$(foreign_architecture_of "$set")
    if [[ -n $foreign ]] && ! dpkg --print-foreign-architectures | grep -qx "$foreign"; then
      can_be_root || die "--arch $foreign needs root once: sudo dpkg --add-architecture $foreign"
      as_root dpkg --add-architecture "$foreign"
    fi
  done
  install_on_host "${missing[@]}"
}

# The two tools that a private root needs (and newuidmap for a plain user, and Debian's keys).
ensure_root_tools() {
  local missing=()
  command -v mmdebstrap >/dev/null || missing+=(mmdebstrap)
  command -v bwrap >/dev/null || missing+=(bubblewrap)
  if ((EUID)) && ! command -v newuidmap >/dev/null; then missing+=(uidmap); fi
  if host_has_apt && [[ ! -e /usr/share/keyrings/debian-archive-keyring.gpg ]]; then
    missing+=(debian-archive-keyring)
  fi
  ((${#missing[@]})) || return 0
  host_has_apt ||
    die "this system is not Debian 13, and making a private one needs ${missing[*]}; install them with its package manager and try again"
  say "this system is not Debian 13: a private one will be made, which needs ${missing[*]}"
  install_on_host "${missing[@]}"
}

prepare_environment() {
  [[ $(uname -s) == Linux ]] || die "sluice builds on Linux only, and this is $(uname -s)"
  case $(machine_architecture) in
    amd64 | arm64 | armhf) ;;
    *) die "sluice builds on x86-64 and ARM only, and this is $(uname -m)" ;;
  esac
  if [[ $command == remove-root ]]; then
    remove_private_root
    exit
  elif host_is_debian_13; then
    prepare_host
  else
    prepare_root
    enter_root "$top/platforms/run" "${all_arguments[@]}"
  fi
}
