"""Routes for administrators that change a queue as a whole."""
