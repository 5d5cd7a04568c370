# Running a child so that it might as well have been started directly.

# run_forwarding COMMAND...: the command's stdin, stdout, stderr and exit status are its own, and the
# signals that would end this shell go to the command instead. (bash leaves a foreground child running
# when it is killed itself, and makes a background child deaf to SIGINT; hence `env` and the traps.)
run_forwarding() {
  env --default-signal=INT,QUIT "$@" <&0 &
  forwarding_to=$!
  local signal status
  for signal in HUP INT TERM; do
    # shellcheck disable=SC2064
    trap "forward_signal $signal" "$signal"
  done
  while :; do
    status=0
    wait "$forwarding_to" || status=$?
    # A signal interrupts `wait`; the child may still be busy with it.
    kill -0 "$forwarding_to" 2>/dev/null || break
  done
  trap - HUP INT TERM
  return "$status"
}

# bwrap waits for its child and passes nothing on, so the signal goes to the child itself.
forward_signal() {
  local target=$forwarding_to children=''
  if [[ $(cat "/proc/$target/comm" 2>/dev/null) == bwrap ]]; then
    read -r children <"/proc/$target/task/$target/children" || true
    target=${children%% *}
  fi
  [[ -z $target ]] || kill -s "$1" "$target" 2>/dev/null || true
}
