set -eu
cat > slug.py <<'EOF'
def slug(text):
    return text.strip().lower().replace(" ", "-")
EOF
