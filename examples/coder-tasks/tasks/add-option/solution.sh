set -eu
cat > greet.sh <<'EOF'
#!/bin/sh
# usage: greet.sh [-u] NAME
upper=cat
if [ "$1" = -u ]; then
    upper="tr a-z A-Z"
    shift
fi
if [ $# -ne 1 ]; then
    echo "usage: greet.sh [-u] NAME" >&2
    exit 2
fi
echo "Hello, $1!" | $upper
EOF
