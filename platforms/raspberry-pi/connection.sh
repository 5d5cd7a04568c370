# shellcheck shell=bash
# The way to the device: ssh, or a shell on this computer. Included by `bench`, which sets `host`,
# `local_device` and `name`.

# In the home folder there: it survives a restart of the device, unlike /tmp.
folder=.sluice-bench
ssh_options=()
reconnect_seconds=${SLUICE_KIT_RECONNECT:-600}

quoted() { printf "'%s'" "${1//\'/\'\\\'\'}"; }

# One connection for all that is done. A device that stops answering is noticed within 45 s.
open_connection() {
  socket_folder=$(mktemp -d "${TMPDIR:-/tmp}/sluice-ssh.XXXXXX")
  ssh=(ssh -o BatchMode=yes -o ConnectTimeout=15 -o ServerAliveInterval=15 -o ServerAliveCountMax=3
    -o ControlMaster=auto -o "ControlPath=$socket_folder/%C" -o ControlPersist=60
    "${ssh_options[@]}" -- "$host")
}

close_connection() {
  if [[ -n $host ]]; then "${ssh[@]:0:${#ssh[@]}-2}" -O exit -- "$host" >/dev/null 2>&1 || true; fi
  rm -rf "$socket_folder"
}

# on_device_now SCRIPT: runs it there by sh, with this one's input and output, in the home folder. Returns
# 255 if there is no connection. What ssh says goes to a file, to be explained.
on_device_now() {
  if [[ -n $local_device ]]; then
    (cd "$HOME" && sh -c "$1")
  else
    "${ssh[@]}" "sh -c $(quoted "$1")" 2>"$socket_folder/error"
  fi
}

# on_device SCRIPT: likewise without input, and again while the connection is broken.
on_device() {
  local status start=$SECONDS said=''
  while :; do
    status=0
    on_device_now "$1" </dev/null || status=$?
    ((status == 255)) && [[ -z $local_device ]] || return "$status"
    ((SECONDS - start < reconnect_seconds)) || return 255
    [[ -n $said ]] || say "the connection to $name broke; trying again for $((reconnect_seconds / 60)) minutes"
    said=yes
    sleep 2
  done
}

# on_device_to FILE SCRIPT: its output as a file, whole or not at all.
on_device_to() {
  local status start=$SECONDS
  while :; do
    status=0
    on_device_now "$2" </dev/null >"$1" || status=$?
    ((status == 255)) || return "$status"
    ((SECONDS - start < reconnect_seconds)) || return 255
    sleep 2
  done
}

# The command line that would do the same, with OPTION.
again() {
  local words
  words=$(printf '%q ' "${ssh_options[@]}")
  ((${#ssh_options[@]})) || words=''
  printf './platforms/raspberry-pi/bench %s %s%s' "$1" "$words" "${host:---here}"
}

lost_connection() {
  die "the connection to $name is lost ($(tail -n 1 "$socket_folder/error" 2>/dev/null)); the same command goes on with the run, and this removes it: $(again --clean)"
}

# Why the first connection failed: one sentence.
refuse_connection() {
  local error
  error=$(grep -v '^Warning:' "$socket_folder/error" 2>/dev/null | tr -d '\r' | tail -n 1) || true
  case $(cat "$socket_folder/error" 2>/dev/null) in
    *'Permission denied'*) die "$name does not let you in with a key; run: ssh-copy-id $host" ;;
    *'Host key verification failed'*) die "the key of $name is not known or has changed; run once: ssh $host" ;;
    *'Could not resolve'*) die "there is no computer called ${host#*@} in this network" ;;
    *'Connection refused'*) die "$name has no ssh server running; enable SSH on it (raspi-config, Interface Options)" ;;
    *'timed out'* | *'No route to host'*) die "$name does not answer; is it switched on and in this network?" ;;
    *) die "no connection to $name: ${error:-it gave no reason}" ;;
  esac
}
