"""What crosses process borders: batch bytes, WebSocket frames, HTTP bodies."""
