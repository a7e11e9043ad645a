"""From ready windows to the application: held messages, and handlers that are called with them."""
