set -eu
cat > test_slug.py <<'EOF'
import unittest
from slug import slug


class SlugTest(unittest.TestCase):
    def test_words(self):
        self.assertEqual(slug(" Two Words "), "two-words")
EOF
