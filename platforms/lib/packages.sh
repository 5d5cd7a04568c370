# The package lists of platforms/packages, and which of them are installed.

# The lists that the command at hand needs.
package_sets() {
  echo base
  if [[ -n $arch ]]; then echo "$arch"; fi
  if [[ $command == train ]]; then echo train; fi
  if [[ $command == package ]]; then echo package; fi
  if [[ $command == test-kit ]]; then echo ssh; fi
  if [[ $command == test-page ]]; then echo browser; fi
  if rivals_wanted; then echo rivals; fi
}

# Whether libraries are to be compared that are not there anyway. They are this machine's own only.
rivals_wanted() {
  [[ $command == bench && -z $arch ]] || return 1
  local words=" ${arguments[*]} "
  case ${words//=/ } in
    *' --rivals none '* | *' --rivals xnnpack '*) return 1 ;;
    *' --rivals '* | *' --full '*) return 0 ;;
    *) return 1 ;;
  esac
}

# packages_of SET: its packages, without comments.
packages_of() { sed -e 's/#.*//' -e 's/[[:space:]]//g' -e '/^$/d' "$top/platforms/packages/$1.txt"; }

# The foreign architecture that a list's packages belong to, if any.
foreign_architecture_of() {
  case $1 in arm64 | armhf) echo "$1" ;; esac
}

fingerprint_of() { packages_of "$1" | LC_ALL=C sort | sha256sum | cut -c 1-16; }

# missing_packages SET...: those not installed on this very system.
missing_packages() {
  local set package
  local -A installed=()
  while read -r package status; do
    [[ $status == installed ]] && installed[$package]=1
  done < <(dpkg-query -W -f '${Package}:${Architecture} ${db:Status-Status}\n' 2>/dev/null)
  local native
  native=$(dpkg --print-architecture)
  for set in "$@"; do
    while read -r package; do
      if [[ $package == *:* ]]; then
        [[ -n ${installed[$package]:-} ]] || echo "$package"
      else
        [[ -n ${installed[$package:$native]:-}${installed[$package:all]:-} ]] || echo "$package"
      fi
    done < <(packages_of "$set")
  done
}

# Why a package download or installation failed, judged by its log: one sentence in $failure. Returns 1
# if the cause lies outside the root, so that making the root anew would not help.
explain_failure() {
  local log=$1
  if grep -qiE 'no space left on device|enough free space' "$log"; then
    failure="no space is left on the disk"
  elif grep -qiE 'unable to locate package|has no installation candidate' "$log"; then
    failure=$(grep -iE 'unable to locate package|has no installation candidate' "$log" | head -n 1)
  elif grep -qiE 'temporary failure resolving|could not resolve|(could not|unable to) connect|connection (timed out|refused|failed)|network is unreachable|failed to fetch' "$log"; then
    failure="the Debian mirror cannot be reached or is incomplete (is there a network? SLUICE_MIRROR names another mirror)"
  else
    failure=$(grep -E '^(E|dpkg):|[Ee]rror' "$log" | tail -n 1 | cut -c 1-200)
    failure="${failure:-no reason was given} (log: $log)"
    return 0
  fi
  failure="$failure (log: $log)"
  return 1
}
