"""What people are told, from what is decided and recorded."""
