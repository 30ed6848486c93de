#!/usr/bin/env bash
# Renews the screens in docs/ui.md with what the program really shows. Each is
# the code block behind a comment: <!-- screen FIXTURE WIDTHxHEIGHT KEYS… -->,
# where KEYS are as tmux names them, and paste:FILE pastes a file.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
socket=kvscope-docs-$$
trap 'tmux -L "$socket" kill-server 2>/dev/null || true; rm -rf "$work"' EXIT
CGO_ENABLED=0 go build -o "$work/kvscope" ./cmd/kvscope

# The ids of a prompt that a fleet served.
gunzip -c fixtures/a_fleet/truth.jsonl.gz | grep -o '"prompt_token_ids": *\[[^]]*\]' | tail -1 | grep -o '\[.*' >"$work/prompt"

# A session that stays, so that the server does too.
tmux -L "$socket" -f /dev/null new-session -d -s keep 'sleep 600'

# shot FIXTURE SIZE KEYS… writes one screen.
shot() {
	local fixture=$1 size=$2 key
	shift 2
	tmux -L "$socket" new-session -d -s s -x "${size%x*}" -y "${size#*x}" \
		"env LANG=C.UTF-8 $work/kvscope replay fixtures/$fixture/events.jsonl.gz"
	for _ in $(seq 100); do
		tmux -L "$socket" capture-pane -p -t s | grep -q 'paused' && break
		sleep 0.1
	done
	for key in "$@"; do
		case $key in
		paste:*)
			tmux -L "$socket" load-buffer "$work/${key#paste:}"
			tmux -L "$socket" paste-buffer -p -t s
			;;
		*) tmux -L "$socket" send-keys -t s "$key" ;;
		esac
		sleep 0.7
	done
	sleep 0.5
	tmux -L "$socket" capture-pane -p -t s | sed 's/[[:space:]]*$//'
	tmux -L "$socket" kill-session -t s
}

while IFS= read -r line; do
	case $line in
	'<!-- screen '*)
		printf '%s\n' "$line"
		IFS= read -r fence
		printf '%s\n' "$fence"
		while IFS= read -r old && [ "$old" != '```' ]; do :; done
		args=${line#<!-- screen }
		# shellcheck disable=SC2086
		shot ${args% -->} </dev/null
		printf '```\n'
		;;
	*) printf '%s\n' "$line" ;;
	esac
done <docs/ui.md >"$work/ui.md"
cat "$work/ui.md" >docs/ui.md
