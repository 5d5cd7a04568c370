# What `run` says. All of it goes to stderr: stdout belongs to the command that is run.

say() { printf 'run: %s\n' "$*" >&2; }

# One clear sentence, then the end. Status 1: it was asked rightly and failed.
die() {
  printf 'run: error: %s\n' "$*" >&2
  exit 1
}

# Status 2: it was asked wrongly.
usage_error() {
  printf 'run: error: %s (./platforms/run --help)\n' "$*" >&2
  exit 2
}

# A background child is deaf to Ctrl-C, so it is ended by hand. `unshare` takes all it has started with
# it when it dies; others get the chance to end in order.
stop_child() {
  pkill -TERM -P "$1" || true
  kill -KILL "$1" 2>/dev/null || true
  wait "$1" 2>/dev/null || true
}

# with_progress LOG MESSAGE COMMAND...: runs a long command with its output in LOG, and shows that it
# lives: on a terminal one line that is rewritten, elsewhere a line whenever the command says
# something new, at most one in ten seconds.
with_progress() {
  local log=$1 message=$2 start=$SECONDS status=0 line='' last='' shown=$SECONDS
  shift 2
  say "$message"
  "$@" >"$log" 2>&1 </dev/null &
  local child=$!
  trap 'stop_child "$child"; exit 130' INT TERM HUP
  while kill -0 "$child" 2>/dev/null; do
    sleep 0.5
    line=$(tail -c 400 "$log" | tr '\r' '\n' | grep -v '^[[:space:]]*$' | tail -n 1 | cut -c 1-70) || true
    if [[ -t 2 ]]; then
      printf '\r\033[K  %4d s  %s' $((SECONDS - start)) "$line" >&2
    elif [[ $line != "$last" ]] && ((SECONDS - shown >= 10)); then
      printf '  %4d s  %s\n' $((SECONDS - start)) "$line" >&2
      shown=$SECONDS
      last=$line
    fi
  done
  wait "$child" || status=$?
  trap - INT TERM HUP
  if [[ -t 2 ]]; then printf '\r\033[K' >&2; fi
  return "$status"
}
