# Entering the private Debian 13. Its own are only the system folders; everything else is the host's,
# under the same paths, so that any file the caller names is there.

# What the private root brings; a host folder of these names stays outside.
own_folders=' bin sbin lib lib32 lib64 libx32 libo32 usr etc '

enter_root() {
  local mounts=() entry name variable
  for entry in "$root_dir"/*; do
    name=${entry##*/}
    [[ $own_folders == *" $name "* ]] || continue
    if [[ -L $entry ]]; then
      mounts+=(--symlink "$(readlink "$entry")" "/$name")
    else
      mounts+=(--ro-bind "$entry" "/$name")
    fi
  done
  for entry in /*; do
    name=${entry##*/}
    [[ $own_folders != *" $name "* ]] || continue
    if [[ -L $entry ]]; then
      mounts+=(--symlink "$(readlink "$entry")" "/$name")
    elif [[ $name == dev ]]; then
      mounts+=(--dev-bind /dev /dev)
    elif [[ -d $entry && -r $entry && -x $entry ]]; then
      mounts+=(--bind "$entry" "/$name")
    fi
  done
  # Who the user is and how names and certificates resolve: as on the host.
  for entry in /etc/resolv.conf /etc/hosts /etc/passwd /etc/group /etc/pip.conf \
    /usr/local/share/ca-certificates; do
    if [[ -e $entry && -e $root_dir$entry ]]; then
      mounts+=(--ro-bind "$(readlink -f "$entry")" "$entry")
    fi
  done
  for entry in /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt \
    /etc/ssl/ca-bundle.pem; do
    if [[ -e $entry ]]; then
      mounts+=(--ro-bind "$(readlink -f "$entry")" /etc/ssl/certs/ca-certificates.crt)
      break
    fi
  done
  # Which package a library of the private root belongs to is not what the host's dpkg knows.
  mounts+=(--ro-bind "$root_dir/var/lib/dpkg" /.sluice/dpkg --setenv DPKG_ADMINDIR /.sluice/dpkg)
  # A certificate that a variable names may lie in a folder that stays outside.
  for variable in SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE PIP_CERT \
    GIT_SSL_CAINFO; do
    entry=${!variable:-}
    if [[ -n $entry && -e $entry ]] && is_own "$entry"; then
      mounts+=(--ro-bind "$entry" "/.sluice/$variable" --setenv "$variable" "/.sluice/$variable")
    fi
  done
  if is_own "$PWD"; then
    die "the working directory $PWD is part of the system and not visible in the private Debian 13; change to another"
  fi
  if is_own "$top"; then
    die "the checkout $top is part of the system and not visible in the private Debian 13; move it"
  fi

  local status=0
  run_forwarding bwrap "${mounts[@]}" --chdir "$PWD" --die-with-parent \
    --setenv SLUICE_INSIDE 1 --setenv LC_ALL C.UTF-8 \
    --setenv PATH /usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    --unsetenv LD_LIBRARY_PATH --unsetenv LD_PRELOAD --unsetenv PYTHONHOME --unsetenv PYTHONPATH \
    --unsetenv CC --unsetenv CXX \
    "$@" || status=$?
  exit "$status"
}

# is_own PATH: whether it lies in a folder that the private root brings.
is_own() {
  local first=${1#/}
  first=${first%%/*}
  [[ $own_folders == *" $first "* ]]
}
