# shellcheck shell=bash
# Sourced by the scripts: how they speak. All of it goes to standard error; results go to standard output.

say() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; }

stop() {
  say "error: $*"
  exit 1
}

misuse() {
  printf 'usage: %s\n' "$*" >&2
  exit 2
}

# Runs a command quietly: its output shows only when it fails.
run_logged() {
  local log
  log=$(mktemp)
  if ! "$@" >"$log" 2>&1 </dev/null; then
    cat "$log" >&2
    rm -f "$log"
    stop "'$*' failed; its output is above"
  fi
  rm -f "$log"
}
