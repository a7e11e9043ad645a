"""What a member registers where the application chooses: its calls, its epochs, its node."""
