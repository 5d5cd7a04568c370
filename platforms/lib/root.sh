# The private Debian 13: made once, in a cache outside the checkout, and reused by every checkout.
#
# It is built under a temporary name and renamed when it is complete. In var/lib/sluice it carries,
# for each package list that went in, the list's fingerprint: a list that has changed since adds
# packages to the root instead of starting over. A plain user owns the root's files, by a user
# namespace in which that user is root.

release=trixie
root_space_mb=2500 # measured: see the sizes in platforms/packages/base.txt

root_paths() {
  local cache=${XDG_CACHE_HOME:-${HOME:?run: error: neither XDG_CACHE_HOME nor HOME is set}/.cache}
  [[ $cache == /* ]] || die "XDG_CACHE_HOME must be an absolute path, not $cache"
  cache_dir=$cache/sluice
  root_dir=$cache_dir/debian13
}

root_stamps() { echo "$1/var/lib/sluice"; }

root_is_whole() { [[ -d $(root_stamps "$root_dir") && -x $root_dir/usr/bin/env ]]; }

# The lists that the command needs and the root does not have as they now are.
stale_sets() {
  local set
  while read -r set; do
    [[ $(cat "$(root_stamps "$root_dir")/$set" 2>/dev/null) == "$(fingerprint_of "$set")" ]] ||
      echo "$set"
  done < <(package_sets)
}

prepare_root() {
  root_paths
  ensure_root_tools
  ensure_bwrap_works
  if root_is_whole && [[ -z $(stale_sets) ]]; then return; fi

  lock_root
  ensure_namespace_works
  local left
  for left in "$cache_dir"/debian13.new.*; do
    [[ ! -e $left ]] || remove_root "$left" # what an interrupted run left
  done
  if root_is_whole; then
    if ! add_to_root; then
      say "adding packages failed: $failure; making it anew"
      make_root
    fi
  else
    make_root
  fi
  exec 8>&-
}

# Until fd 8 is closed, no other run makes, changes or removes the root.
lock_root() {
  mkdir -p "$cache_dir" 2>/dev/null || die "cannot create $cache_dir"
  exec 8>"$cache_dir/lock" || die "cannot write to $cache_dir"
  flock -n 8 && return
  say "another run is preparing $root_dir; waiting for it"
  flock 8
}

# Put before a command, runs it as root over the root's files, with mounts and processes of its own,
# which end with it.
in_namespace=(unshare)
((EUID == 0)) || in_namespace+=(--map-root-user --map-auto --setuid 0 --setgid 0)
in_namespace+=(--mount --pid --fork --kill-child --mount-proc)

ensure_bwrap_works() {
  local message
  message=$(bwrap --dev-bind / / true 2>&1) ||
    die "bwrap may not make namespaces on this system: ${message##*bwrap: }"
}

ensure_namespace_works() {
  local user file message
  user=$(id -un)
  if ((EUID)); then
    unshare --help | grep -q -- --map-auto ||
      die "making a private Debian 13 as a plain user needs util-linux 2.38 or later; run this once as root with the same XDG_CACHE_HOME"
    for file in /etc/subuid /etc/subgid; do
      grep -qsE "^($user|$EUID):" "$file" ||
        die "$user has no subordinate ids in $file; run: sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 $user"
    done
  fi
  message=$("${in_namespace[@]}" true 2>&1) ||
    die "unshare may not make namespaces on this system: ${message##*unshare: }"
}

ensure_space() {
  local free_mb
  free_mb=$(df -Pm "$cache_dir" | awk 'NR == 2 { print $4 }')
  ((free_mb >= $1)) ||
    die "a private Debian 13 needs $1 MB of disk in $cache_dir, where $free_mb MB are free; XDG_CACHE_HOME names another place"
}

remove_root() { "${in_namespace[@]}" rm -rf --one-file-system "$1" || die "cannot remove $1"; }

# Some of a plain user's root belongs to subordinate ids, which `rm` outside the namespace cannot touch.
remove_private_root() {
  root_paths
  [[ -e $cache_dir ]] || die "there is no private Debian 13 in $cache_dir"
  lock_root
  ensure_namespace_works
  say "removing $cache_dir"
  remove_root "$cache_dir"
}

make_root() {
  ensure_space "$root_space_mb"
  local new=$cache_dir/debian13.new.$$ log=$cache_dir/debian13.log
  # shellcheck disable=SC2064 # the value of now: at the end the variable is gone
  trap "remove_root '$new'" EXIT
  mkdir -p "$new"
  local include
  include=$(packages_of base | paste -sd ,)
  local mirror=()
  [[ -z ${SLUICE_MIRROR:-} ]] || mirror=("$SLUICE_MIRROR")
  with_progress "$log" "making a private Debian 13 in $root_dir (once; a minute or two)" \
    "${in_namespace[@]}" mmdebstrap --mode=root --variant=minbase --components=main \
    --architectures="$(machine_architecture)" --skip=cleanup/apt/lists \
    --aptopt='Acquire::Retries "3"' --aptopt='Acquire::Languages "none"' \
    --dpkgopt=force-unsafe-io --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' \
    --include="$include" "$release" "$new" "${mirror[@]}" || {
    explain_failure "$log" || true
    die "making a private Debian 13 failed: $failure"
  }
  # Mount points for what enter_root brings in from outside.
  touch "$new/etc/resolv.conf" "$new/etc/hosts" "$new/etc/pip.conf"
  mkdir -p "$(root_stamps "$new")"
  fingerprint_of base >"$(root_stamps "$new")/base"
  [[ ! -e $root_dir ]] || remove_root "$root_dir"
  mv "$new" "$root_dir"
  trap - EXIT
  if [[ -n $(stale_sets) ]]; then
    add_to_root || die "installing packages into $root_dir failed: $failure"
  fi
}

# Adds the lists that are stale. Returns 1 if the root is to blame, with the reason in $failure.
add_to_root() {
  local sets set foreign log=$cache_dir/debian13.log
  mapfile -t sets < <(stale_sets)
  if [[ ! -O $root_dir ]]; then
    die "$root_dir was made by another user and lacks packages (${sets[*]}); let that user run this, or set XDG_CACHE_HOME"
  fi
  local foreigns=() packages=()
  for set in "${sets[@]}"; do
    foreign=$(foreign_architecture_of "$set")
    [[ -z $foreign ]] || foreigns+=("$foreign")
    mapfile -t -O ${#packages[@]} packages < <(packages_of "$set")
  done
  cp -L /etc/resolv.conf "$root_dir/etc/resolv.conf"
  if ! with_progress "$log" "adding the packages for ${sets[*]} to $root_dir" \
    "${in_namespace[@]}" bash "$top/platforms/lib/add_packages.sh" \
    "$root_dir" "${foreigns[*]}" "${packages[@]}"; then
    ! explain_failure "$log" || return 1
    die "installing packages into $root_dir failed: $failure"
  fi
  for set in "${sets[@]}"; do
    fingerprint_of "$set" >"$(root_stamps "$root_dir")/$set"
  done
}
