#!/usr/bin/env bash
# Renews the tables in docs/lab.md with what the program really prints. Each is the
# code block behind a comment: <!-- lab FLAGS -->. TRACES in it is the folder of
# published traces, $KVSCOPE_DATA/traces.
set -euo pipefail
cd "$(dirname "$0")/.."
traces=${KVSCOPE_DATA:-../shared/data}/traces
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
CGO_ENABLED=0 go build -o "$work/kvscope" ./cmd/kvscope

while IFS= read -r line; do
	printf '%s\n' "$line"
	case $line in
	'<!-- lab '*)
		IFS= read -r fence
		printf '%s\n' "$fence"
		while IFS= read -r old && [ "$old" != '```' ]; do :; done
		args=${line#<!-- lab }
		args=${args% -->}
		# shellcheck disable=SC2086
		"$work/kvscope" lab ${args//TRACES/$traces} </dev/null | sed 's/[[:space:]]*$//'
		printf '```\n'
		;;
	esac
done <docs/lab.md >"$work/lab.md"
cat "$work/lab.md" >docs/lab.md
