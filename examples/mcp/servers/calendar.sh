#!/bin/sh
# An MCP server of the revision without sessions: one JSON object a line on its standard streams.
set -eu
answer() { printf '{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete",%s}}\n' "$id" "$1"; }
while read -r line; do
    id=${line#*'"id":'}
    id=${id%%[,\}]*}
    case $line in
    *'"server/discover"'*) answer '"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}' ;;
    *'"tools/list"'*)
        answer '"tools":[{"name":"weekday","description":"Name the weekday of each date.","inputSchema":{"type":"object","properties":{"dates":{"type":"array","items":{"type":"string","format":"date"}}},"required":["dates"]},"annotations":{"readOnlyHint":true}}]'
        ;;
    *'"tools/call"'*)
        days=
        for date in $(printf '%s\n' "$line" | sed 's/.*"dates":\[\([^]]*\)\].*/\1/' | tr -d '"' | tr ',' ' '); do
            days="$days$(LC_ALL=C date -u -d "$date" +%A 2>&1 || true) "
        done
        answer '"content":[{"type":"text","text":"'"${days% }"'"}]'
        ;;
    esac
done
