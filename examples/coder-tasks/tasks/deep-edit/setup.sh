set -eu
python3 - <<'EOF' > settings.py
print("SERVICES = {")
for name in ["auth", "billing", "mail", "search", "store"]:
    print(f'    "{name}": {{\n        "retries": 3,\n        "timeout": 10,\n    }},')
print("}")
EOF
