set -eu
cat > count.sh <<'EOF'
#!/bin/sh
find "$1" -type f -name '*.*' | sed 's|.*/||; s|.*\.||' | sort | uniq -c | sort -k1,1nr -k2 | awk '{print $1, $2}'
EOF
chmod +x count.sh
