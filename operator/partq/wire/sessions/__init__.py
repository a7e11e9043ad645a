"""Sessions, as they cross process borders: frames, and bodies and answers of HTTP calls."""
