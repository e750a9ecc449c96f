#!/usr/bin/env bash
# `make demo` runs this: schedule gangs on an embedded cluster over HTTP, explain why a job still waits, and replay all
# sessions from the log. It exits with 0 only if the gangs ran, the reason is explained and all sessions are identical.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
log=$folder/events.sqlite

step() { printf '\n\033[1m$ %s\033[0m\n' "$*"; }
fail() { printf 'demo: %s\n' "$*" >&2; exit 1; }
run() {  # print the output of a command and save it in $folder/output
    step "$@"
    "$@" | tee "$folder/output"
}
said() { grep -Eq "$1" "$folder/output"; }

cat <<'WORDS'
Ten nodes of 32 cores, two queues, and a mix of gangs, Volcano Jobs, Deployments and bare pods that arrive within a few
minutes of simulated time. One more job requests 48 cores per worker, which no node has.
WORDS
run vcd sim --nodes 10 --queues research:2,serving:1 --seed 7 \
    --mix gangs=12,jobs=8,deployments=3,pods=15,every=5,size=2-12,run=30-300 \
    --workload "$here/too-large.yaml" --exit-when-idle --event-log "$log"
said '^pods .* Succeeded' || fail "no pod ran to its end"
said '^waiting groups \(1\):' || fail "only the job that is too large may be left waiting"
if said '^refused'; then fail "objects were refused"; fi
said '^never bound \(3\):' || fail "only the three workers of that job may be left without a place"

run vcd explain job too-large --event-log "$log"
said '^Why +Can never run here' || fail "the explanation does not say that the job is too large"

run vcd explain job gang-0 --event-log "$log"
said 'node-[0-9]' || fail "the explanation does not name a node"

run vcd log verify "$log"

run vcd replay --event-log "$log" || fail "the log does not replay identically"
said 'identical' || fail "nothing was replayed"

run vcd plan -f "$here/gang.yaml"
said '^WOULD BIND +1 job, 3 pods$' || fail "the first gang was not placed whole, or a part of the second was"
said '^default/evaluate .*cluster full' || fail "the plan does not say why the second gang waits"

printf '\ndemo: the gangs ran, the waiting job was explained, and every session replayed identically\n'
