set -eu
cat > greet.sh <<'EOF'
#!/bin/sh
# usage: greet.sh NAME
if [ $# -ne 1 ]; then
    echo "usage: greet.sh NAME" >&2
    exit 2
fi
echo "Hello, $1!"
EOF
chmod +x greet.sh
